"""Speaks with a running stub worker (see `support.stub_worker` for its commands)."""

from __future__ import annotations

import json
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

STUB_COMMAND = [sys.executable, str(Path(__file__).resolve().parent / "stub_worker.py")]
"""The command of a stub worker; it needs STUB_DIR in its environment."""


@dataclass(frozen=True)
class LoggedSignal:
    """One signal that the stub got: when (its monotonic clock), which life, which signal."""

    at: float
    pid: int
    name: str


class StubGone(RuntimeError):
    """It took the command and died; the command must not be given to its next life."""


class StubControl:
    """The stub whose STUB_DIR is `directory`; whichever life of it listens there now."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def send(self, command: str, timeout: float = 30.0) -> str:
        """Give one command and return the answer. Raises RuntimeError where the stub says no.

        Waits for a stub that is just starting, up to `timeout` seconds in all.
        """
        until = time.monotonic() + timeout
        while True:
            try:
                return self._send(command, max(0.1, until - time.monotonic()))
            except (FileNotFoundError, ConnectionError):
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)

    def tell(self, command: str) -> None:
        """Give a command that the stub does not survive, such as ``exit 1``."""
        try:
            self.send(command)
        except StubGone:
            return

    def status(self) -> dict[str, object]:
        """Its pid, incarnation, mode and number of steps begun."""
        answer: dict[str, object] = json.loads(self.send("status"))
        return answer

    def signals(self) -> list[LoggedSignal]:
        """All signals that any life of the stub got, the oldest first."""
        try:
            lines = (self.directory / "signals.log").read_text("ascii").splitlines()
        except FileNotFoundError:
            return []
        words = [line.split() for line in lines]
        return [LoggedSignal(float(at), int(pid), name) for at, pid, name in words]

    def _send(self, command: str, timeout: float) -> str:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(timeout)
            connection.connect(str(self.directory / "stub.sock"))
            connection.sendall(command.encode() + b"\n")
            answer = _line(connection)
        if not answer:
            raise StubGone(f"the stub went away at {command!r}")
        if answer.startswith("error: "):
            raise RuntimeError(f"{command!r}: {answer}")
        return answer


def _line(connection: socket.socket) -> str:
    """What the stub says; "" where it died first."""
    try:
        with connection.makefile(encoding="utf-8") as file:
            return file.readline().rstrip("\n")
    except ConnectionResetError:
        return ""
