"""A real AdminServer in a process of its own: `python -m support.admin_process SOCKET [MODE]`.

MODE: plain, stuck (commands never come about), refuse, huge (2000 workers with long sentences), odd
(workers with names that mean ill).
A line on stdin records an event with that sentence; the end of stdin ends the process.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from stepwarden.clock import SystemClock
from stepwarden.edge.admin_service import AdminServer
from stepwarden.edge.listen import UnixTarget
from stepwarden.edge.views import WorkerView

from support.backend import GEMMA, Backend

TESTS = Path(__file__).resolve().parents[1]


@contextmanager
def admin_process(path: Path, mode: str = "plain") -> Iterator[subprocess.Popen[str]]:
    """Such a process, serving on `path`; it is gone at the end of the block."""
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-m", "support.admin_process", str(path), mode]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "serving\n"
            yield process
        finally:
            process.kill()


def _backend(mode: str) -> Backend:
    backend = Backend()
    backend.stuck = mode == "stuck"
    backend.refusal = "its last process 77 cannot be ended" if mode == "refuse" else ""
    if mode == "huge":
        backend.views = {
            f"w{n}": WorkerView(f"w{n}", "FAILED", sentence="x" * 4096) for n in range(2000)
        }
    if mode == "odd":
        backend.views = {
            name: replace(GEMMA, name=name, state="DEAD", cause=name[:9], sentence=name * 3)
            for name in ODD_NAMES
        }
        for name in ODD_NAMES:
            backend.record(name * 3, name, "HEALTHY", "DEAD")
    return backend


ODD_NAMES = (
    "\x1b]0;title\x07\x1b[2J\x1b[31mred",
    "[b]not bold[/b]",
    "\u6a21\u578b" * 30,
    "\u202egnp.exe\x00\x9b2J",
    "e\u0301" * 40 + "\n\r\t",
    "x" * 300,
)


async def _serve(path: Path, mode: str) -> None:
    backend = _backend(mode)
    server = AdminServer(UnixTarget(path), backend, SystemClock())
    backend.publish = server.publish
    backend.record("it came up", GEMMA.name, "STARTING", "HEALTHY")
    await server.start()
    print("serving", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        backend.record(line.strip(), GEMMA.name)
    await server.stop()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), sys.argv[2]))
