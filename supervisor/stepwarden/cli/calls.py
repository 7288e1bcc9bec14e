"""One call to the daemon over its unix socket, by the agent's small gRPC client.

grpcio takes longer to import than the daemon takes to answer. Every wait here has its limit: the
deadline of the call, or, in a stream without one, the patience for a sign of life.
"""

from __future__ import annotations

import os
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stepwarden_agent.wire.call import Call, Limits

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline

CHUNK_BYTES = 256 * 1024
LIMITS = Limits(message_bytes=64 * 1024 * 1024, text=4000)
"""A list of tens of thousands of workers, and the longest sentence of a verdict."""


class CallError(Exception):
    """A call that did not end well: the name of a gRPC status, a text, what came with it."""

    def __init__(self, status: str, text: str, trailers: dict[str, str] | None = None) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status
        self.text = text
        self.trailers = trailers or {}


class SilenceError(Exception):
    """The daemon did not answer in time."""


@dataclass(frozen=True)
class Patience:
    """How long a daemon may be silent in a stream, in seconds, before and after it is asked."""

    before_ping: float
    after_ping: float


def exchange(
    path: Path, method: str, request: bytes, deadline: Deadline, patience: Patience, clock: Clock
) -> Iterator[bytes]:
    """The answers to one request, as they come.

    Raises CallError, SilenceError, and OSError where the connection cannot be used.
    """
    call = Call(method, "localhost", (), LIMITS)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        _connect(link, path, deadline, patience, clock)
        yield from _Talk(link, call, deadline, patience, clock).answers(request)


def _connect(
    link: socket.socket, path: Path, deadline: Deadline, patience: Patience, clock: Clock
) -> None:
    """A blocking connect with a limit: it waits while a frozen daemon's queue is full."""
    left = deadline.remaining(clock.monotonic())
    if left is None:
        left = patience.before_ping + patience.after_ping
    # Zero would mean no limit at all to the kernel.
    micros = max(1, int(left * 1e6))
    limit = struct.pack("ll", *divmod(micros, 1_000_000))
    link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
    try:
        link.connect(os.fspath(path))
    except BlockingIOError:
        raise SilenceError from None
    link.setblocking(False)


class _Talk:
    """The bytes of one call go back and forth."""

    def __init__(
        self, link: socket.socket, call: Call, deadline: Deadline, patience: Patience, clock: Clock
    ) -> None:
        self._link = link
        self._call = call
        self._deadline = deadline
        self._patience = patience
        self._clock = clock
        self._pinged = False

    def answers(self, request: bytes) -> Iterator[bytes]:
        begun = False
        while self._call.end is None:
            if self._call.ready and not begun:
                begun = True
                self._call.begin()
                self._call.send(request, last=True)
            self._send()
            yield from self._receive()
        if self._call.end.status != "OK":
            raise CallError(*self._call.end, self._call.trailers)

    def _send(self) -> None:
        out = self._call.out
        with suppress(BlockingIOError):
            while out:
                del out[: self._link.send(out)]

    def _receive(self) -> list[bytes]:
        if not self._wait():
            return []
        data = self._link.recv(CHUNK_BYTES)
        if not data:
            raise CallError("UNAVAILABLE", "")
        self._pinged = False
        return self._call.receive(data)

    def _wait(self) -> bool:
        """True when something has come, or False to look again. SilenceError: it is too late."""
        left = self._deadline.remaining(self._clock.monotonic())
        quiet = self._patience.after_ping if self._pinged else self._patience.before_ping
        limit = quiet if left is None else left
        if self._look(limit):
            return True
        if left is not None or self._pinged:
            raise SilenceError
        self._pinged = True
        self._call.ping()
        return False

    def _look(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._link, select.POLLIN | (select.POLLOUT if self._call.out else 0))
        return bool(poll.poll(max(0, round(seconds * 1000))))
