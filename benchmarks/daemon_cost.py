"""CPU and memory of the daemon with 64 ranks at 1 Hz, beside a bare grpc.aio server.

Both take the beats of 64 real agents (4 worker processes of 16 ranks each). They are measured one
after the other, twice in turns, over the same length of time; the ratio is that of the sums. Both
have settled before, for the daemon looks at young process trees more often.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from results import Result, ratio
from servers import HERE, cpu_seconds, daemon, rss_megabytes, stub, until
from stepwarden_proto.page import ENV_INCARNATION, ENV_PAGE_DIR, ENV_TARGET, ENV_TOKEN, ENV_WORKER
from stepwarden_proto.v1 import supervisor_pb2

TOPIC = "daemon, 64 ranks at 1 Hz"
WORKERS, RANKS = 4, 16
SECONDS = 20.0
SETTLE_SECONDS = 8.0


def measure(scratch: Path) -> list[Result]:
    ours = bare = 0.0
    memory = 0.0
    for turn in range(2):
        used, resident = _daemon(scratch / f"d{turn}")
        ours += used
        memory = max(memory, resident)
        bare += _bare(scratch / f"b{turn}")
    span = 2 * SECONDS
    return [
        ratio(
            TOPIC, "CPU beside a bare grpc.aio server that takes the same beats", ours / bare, 1.5
        ),
        Result(TOPIC, "CPU of the daemon", f"{100 * ours / span:.2f} % of a core"),
        Result(TOPIC, "CPU of the bare server", f"{100 * bare / span:.2f} % of a core"),
        ratio(TOPIC, "resident memory", memory, 80, "MB"),
    ]


def _daemon(scratch: Path) -> tuple[float, float]:
    scratch.mkdir()
    command = f'["{sys.executable}", "{HERE}/many_ranks.py", "{RANKS}"]'
    workers = "".join(f"  w{n}: {{backend: cpu, command: {command}}}\n" for n in range(WORKERS))
    with daemon(scratch, f"workers:\n{workers}") as process:
        service = stub(scratch)
        until(lambda: _attached(service), 60, "not all ranks attached")
        time.sleep(SETTLE_SECONDS)
        before = cpu_seconds(process.pid)
        time.sleep(SECONDS)
        return cpu_seconds(process.pid) - before, rss_megabytes(process.pid)


def _attached(service: object) -> bool:
    answer = service.ListWorkers(supervisor_pb2.ListWorkersRequest(), timeout=5)  # type: ignore[attr-defined]
    return sum(len(worker.ranks) for worker in answer.workers) == WORKERS * RANKS


def _bare(scratch: Path) -> float:
    scratch.mkdir()
    with bare_server(scratch) as server, agents(scratch, WORKERS, RANKS):
        # Its own agents need no longer to attach than those of the daemon did.
        time.sleep(SETTLE_SECONDS + 5.0)
        before = cpu_seconds(server)
        time.sleep(SECONDS)
        return cpu_seconds(server) - before


@contextmanager
def bare_server(scratch: Path, *options: str) -> Iterator[int]:
    """The reference in a process of its own; gives its pid. `options`: as of bare_server.py."""
    command = [sys.executable, str(HERE / "bare_server.py"), str(scratch / "a.sock"), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        try:
            yield server.pid
        finally:
            server.terminate()


@contextmanager
def agents(scratch: Path, workers: int, ranks: int) -> Iterator[None]:
    """Worker processes without a supervisor, whose agents beat to the reference."""
    processes = []
    for number in range(workers):
        pages = scratch / f"pages{number}"
        pages.mkdir()
        told = {
            ENV_WORKER: f"w{number}",
            ENV_INCARNATION: "1",
            ENV_TARGET: f"unix:{scratch}/a.sock",
            ENV_TOKEN: "none",
            ENV_PAGE_DIR: str(pages),
        }
        command = [sys.executable, str(HERE / "many_ranks.py"), str(ranks)]
        processes.append(subprocess.Popen(command, env=os.environ | told))
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
