"""Stands for what starts an attached worker: a supervisor of containers, an init system.

It runs in a process of its own, starts the stub worker, and starts it again each time it has
ended, as long as the file `hold` is not there, and at most 20 times.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from support import processes
from support.stub_control import STUB_COMMAND, StubControl

_SCRIPT = """
import os, subprocess, sys, time
from pathlib import Path
directory = Path(sys.argv[1])
for _ in range(20):
    while (directory / "hold").exists():
        time.sleep(0.05)
    subprocess.run(sys.argv[2:], check=False)
    time.sleep(0.1)
"""


class Platform:
    """One that keeps the stub of `directory` running."""

    def __init__(self, directory: Path, process: subprocess.Popen[bytes]) -> None:
        self.stub = StubControl(directory)
        self.process = process
        self._hold = directory / "hold"

    def hold(self) -> None:
        """Start it no more for now."""
        self._hold.touch()

    def release(self) -> None:
        """Start it again."""
        self._hold.unlink(missing_ok=True)

    @property
    def lives(self) -> list[int]:
        """The pids of all lives of the stub."""
        with suppress(FileNotFoundError):
            return [int(line) for line in (self.stub.directory / "lives").read_text().split()]
        return []

    @property
    def runs(self) -> bool:
        """It lives, and has got no signal."""
        return self.process.poll() is None


@contextmanager
def platform(
    environment: dict[str, str], script: str = "attach; idle", *prefix: str
) -> Iterator[Platform]:
    """A platform with its stub; `prefix` is put before the stub's command."""
    directory = Path(tempfile.mkdtemp(prefix="swp-"))
    command = [sys.executable, "-c", _SCRIPT, str(directory), *prefix, *STUB_COMMAND]
    process = subprocess.Popen(
        command, env=environment | {"STUB_DIR": str(directory), "STUB_SCRIPT": script}
    )
    made = Platform(directory, process)
    try:
        yield made
    finally:
        made.hold()
        below = processes.descendants(process.pid)
        process.kill()
        process.wait(10)
        processes.end(below)
        shutil.rmtree(directory)
