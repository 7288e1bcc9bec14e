"""A worker with a family: main, child A, child B in a session of its own, a grandchild of B.

Arguments: a directory, and "stubborn" for a main that ignores TERM. Each process holds a lock on
DIRECTORY/NAME.lock (it stands for GPU memory) and writes its pid to DIRECTORY/NAME.pid.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from pathlib import Path


def hold(directory: Path, name: str) -> None:
    """Take the lock, tell the pid, and stay for ever."""
    descriptor = os.open(directory / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    (directory / f"{name}.pid").write_text(f"{os.getpid()}\n")
    while True:
        signal.pause()


def main() -> None:
    directory = Path(sys.argv[1])
    if os.fork() == 0:
        hold(directory, "child_a")
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            hold(directory, "grandchild")
        hold(directory, "child_b")
    if "stubborn" in sys.argv:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    hold(directory, "main")


if __name__ == "__main__":
    main()
