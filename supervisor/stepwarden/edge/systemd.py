"""What the daemon tells systemd: sd_notify datagrams, written with the standard library alone.

Nothing here waits. A message that the service manager cannot take at once is dropped: the next
watchdog message follows within seconds, and a supervisor must not stand still for its log line.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

NOTIFY_SOCKET = "NOTIFY_SOCKET"
WATCHDOG_USEC = "WATCHDOG_USEC"
WATCHDOG_PID = "WATCHDOG_PID"

MAX_STATUS = 512
"""Characters of a status text that are kept; `systemctl status` shows one line."""

_PRIVATE = frozenset(
    {
        NOTIFY_SOCKET,
        WATCHDOG_USEC,
        WATCHDOG_PID,
        "LISTEN_FDS",
        "LISTEN_PID",
        "LISTEN_FDNAMES",
        "CREDENTIALS_DIRECTORY",
        "RUNTIME_DIRECTORY",
        "STATE_DIRECTORY",
    }
)


def strip(environ: Mapping[str, str]) -> dict[str, str]:
    """`environ` without what systemd meant for the daemon alone, for its workers.

    A worker that kept NOTIFY_SOCKET would speak in the name of the service.
    """
    return {name: value for name, value in environ.items() if name not in _PRIVATE}


class Notifier:
    """Sends state to the service manager; without a socket every call is a no-op.

    Each method returns True when the message left, False when it was dropped or there is nobody
    to tell. `watchdog_interval`: seconds between two watchdog messages, half of what the service
    manager allows; None where it does not watch this process.
    """

    def __init__(self, address: str | None, watchdog_interval: float | None = None) -> None:
        self.watchdog_interval = watchdog_interval
        self._address = _socket_address(address)
        self._socket: socket.socket | None = None

    @classmethod
    def from_env(cls, environ: Mapping[str, str], pid: int | None = None) -> Notifier:
        """As systemd's variables say; `pid` is this process unless given."""
        own = os.getpid() if pid is None else pid
        return cls(environ.get(NOTIFY_SOCKET), _interval(environ, own))

    def ready(self) -> bool:
        """The daemon serves."""
        return self._send("READY=1")

    def reloading(self, now: float) -> bool:
        """The configuration is being loaded again, since `now`; `ready` says that it is over."""
        return self._send(f"RELOADING=1\nMONOTONIC_USEC={max(0, round(now * 1_000_000))}")

    def status(self, text: str) -> bool:
        """One line for `systemctl status`; more lines are joined."""
        return self._send("STATUS=" + " ".join(text.split())[:MAX_STATUS])

    def watchdog(self) -> bool:
        """The verdict loop has turned."""
        return self._send("WATCHDOG=1")

    def stopping(self) -> bool:
        """The daemon has begun to end."""
        return self._send("STOPPING=1")

    def extend_timeout(self, seconds: float) -> bool:
        """Ask for `seconds` more, from now, for the start or stop that is going on."""
        return self._send(f"EXTEND_TIMEOUT_USEC={max(0, round(seconds * 1_000_000))}")

    def close(self) -> None:
        """Give the socket back; later calls open another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _send(self, message: str) -> bool:
        if self._address is None:
            return False
        try:
            if self._socket is None:
                kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
                self._socket = socket.socket(socket.AF_UNIX, kind)
            self._socket.sendto(message.encode("utf-8", "replace"), self._address)
        except OSError:
            return False
        return True


def _socket_address(address: str | None) -> str | bytes | None:
    """The address as the kernel takes it; None for none and for kinds that are not unix sockets."""
    if address is None or len(address) < 2 or address[0] not in "/@":
        return None
    if address[0] == "@":
        return b"\0" + os.fsencode(address[1:])
    return address


def _interval(environ: Mapping[str, str], own_pid: int) -> float | None:
    if environ.get(WATCHDOG_PID, str(own_pid)) != str(own_pid):
        return None
    try:
        limit = int(environ[WATCHDOG_USEC])
    except (KeyError, ValueError):
        return None
    return limit / 2_000_000 if limit > 0 else None
