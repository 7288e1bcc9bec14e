"""A crew whose daemon can be made to fail, and a service manager that listens to it."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc

from support import faulty_daemon
from support.crew import Crew, Section, health_stub
from support.waiting import wait_for


class ServiceManager:
    """The other end of NOTIFY_SOCKET: each message with the time of its arrival."""

    def __init__(self, path: Path) -> None:
        self.address = str(path)
        self.heard: list[tuple[float, str]] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.address)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def watchdogs(self, since: float = 0.0) -> list[float]:
        """When WATCHDOG=1 came, after `since`."""
        return [at for at, message in list(self.heard) if message == "WATCHDOG=1" and at > since]

    def said(self, begin: str) -> list[str]:
        """Every message that begins so."""
        return [message for _, message in list(self.heard) if message.startswith(begin)]

    def close(self) -> None:
        """Listen no more."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._socket.close()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while message := self._socket.recv(65536):
                self.heard.append((time.monotonic(), message.decode()))


class FaultyCrew(Crew):
    """As Crew; `fault` lets one loose. `faulty` False: the next start is of the plain daemon."""

    def __init__(self, workers: Mapping[str, Section], *, supervisor: str = "", **top: Any) -> None:
        super().__init__(workers, supervisor=supervisor, **top)
        self.fault_file = self.directory / "fault"
        self.manager = ServiceManager(self.directory / "notify")
        self.faulty = True
        told = {faulty_daemon.FAULT_FILE: str(self.fault_file)}
        self._extra_env |= told | {"NOTIFY_SOCKET": self.manager.address}

    def __exit__(self, *error: Any) -> None:
        self.fault_file.unlink(missing_ok=True)
        super().__exit__(*error)
        self.manager.close()

    def command(self) -> list[str]:
        if not self.faulty:
            return super().command()
        return [sys.executable, "-m", "support.faulty_daemon", "run", str(self.config)]

    def fault(self, what: str) -> float:
        """Let a fault loose; the time just before."""
        self.fault_file.write_text(what)
        assert self.process is not None
        at = time.monotonic()
        self.process.send_signal(signal.SIGRTMIN)
        return at

    def mend(self) -> None:
        """End the fault."""
        self.fault_file.unlink()

    def ended(self, limit: float = 60.0) -> int:
        """The daemon ends by itself: its exit code."""
        assert self.process is not None
        self.tree()
        code = self.process.wait(limit)
        self.process = None
        self._close_channel()
        return code

    def wait_health(self, service: str, status: str, limit: float = 30.0) -> float:
        """Wait until Check says so, asked with a deadline of a second; when it did."""
        wait_for(lambda: self.health(service) == status, limit, f"{service!r} is {status}")
        return time.monotonic()

    def pids(self) -> dict[str, int]:
        """The main process of each worker."""
        return {name: worker.pid for name, worker in self.status().items()}


def answers_in_time(address: str, seconds: float) -> bool:
    """Whether a Check is answered within this deadline."""
    with health_stub(address) as asked:
        try:
            asked("", timeout=seconds)
        except grpc.RpcError:
            return False
        return True
