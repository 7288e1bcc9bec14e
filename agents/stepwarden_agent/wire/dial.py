"""Reaches a target without ever waiting: `advance` is called when something may have happened.

What it gives in the end is a connected, non-blocking socket; whatever has to be agreed on before
the first byte of HTTP/2 (TLS) belongs here.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from stepwarden_agent import forking
from stepwarden_agent.wire.target import Address, Target, addresses_of

_UNDER_WAY = {errno.EINPROGRESS, errno.EINTR}


class Dial:
    """One attempt: each address of `target` in turn, until one answers.

    `socket` is the one socket there is, connected or not: its only owner, so that a forked child
    can let go of it. `wake` is called by another thread when a name has been looked up.
    """

    def __init__(self, target: Target, wake: Callable[[], None]) -> None:
        self.socket: socket.socket | None = None
        self._left = list(target.addresses)
        self._lookup = None if target.addresses else _Lookup(target, wake)

    @property
    def looking(self) -> bool:
        """The name of the host is being looked up, which takes as long as it takes."""
        return self._lookup is not None

    def advance(self) -> bool:
        """Whether `socket` is connected now. Raises OSError where no address answers."""
        if self._lookup is not None:
            if not self._lookup.done:
                return False
            self._left, self._lookup = self._lookup.result(), None
        while True:
            try:
                return self._try()
            except OSError:
                self.close()
                if not self._left:
                    raise

    def close(self) -> None:
        """Give up, or hang up; nothing is sent."""
        if self.socket is not None:
            with forking.lock:
                self.socket.close()
                self.socket = None

    def forget(self) -> None:
        """Somebody has closed the descriptor under our feet: it may be another's by now."""
        if self.socket is not None:
            self.socket.detach()
            self.socket = None

    def _try(self) -> bool:
        if self.socket is None:
            if not self._left:
                raise OSError("the name stands for no address")
            code = self._start(self._left.pop(0))
        elif not _settled(self.socket):
            return False
        else:
            code = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code in _UNDER_WAY:
            return False
        if code:
            raise OSError(code, os.strerror(code))
        return True

    def _start(self, address: Address) -> int:
        family, place = address
        # Under the lock: a fork in between would leave the child a descriptor that it does not
        # know of, and the supervisor a connection that does not end with this process.
        with forking.lock:
            self.socket = made = socket.socket(family, socket.SOCK_STREAM)
        made.setblocking(False)
        if family != socket.AF_UNIX:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made.connect_ex(place)


def _settled(connecting: socket.socket) -> bool:
    poll = select.poll()
    poll.register(connecting, select.POLLOUT)
    return bool(poll.poll(0))


class _Lookup:
    """Looks a name up in a short-lived thread: a name server may take its time, the beats not."""

    def __init__(self, target: Target, wake: Callable[[], None]) -> None:
        self._target = target
        self._wake = wake
        self._found: list[Address] = []
        self._error: OSError | None = None
        self.done = False
        threading.Thread(target=self._run, name="stepwarden-lookup", daemon=True).start()

    def result(self) -> list[Address]:
        """The addresses. Raises OSError where there are none."""
        if self._error is not None:
            raise self._error
        return self._found

    def _run(self) -> None:
        try:
            self._found = list(addresses_of(self._target.host, self._target.port, numeric=False))
        except (OSError, ValueError) as error:
            self._error = OSError(str(error))
        self.done = True
        with suppress(Exception):
            self._wake()
