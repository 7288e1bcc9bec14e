"""Reaches a target without ever waiting: `advance` is called when something may have happened.

What it gives in the end is a connected, non-blocking socket, with TLS around what goes through it
where that is wanted.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import TYPE_CHECKING

from stepwarden_agent import forking
from stepwarden_agent.settings import TlsSettings
from stepwarden_agent.wire.errors import TlsError
from stepwarden_agent.wire.target import Address, Target, addresses_of

if TYPE_CHECKING:
    import ssl

    from stepwarden_agent.wire.tls import Tls

_CHUNK_BYTES = 8192
_UNDER_WAY = {errno.EINPROGRESS, errno.EINTR}


class Dial:
    """One attempt: each address of `target` in turn, until one answers.

    `socket` is the one socket there is, connected or not: its only owner, so that a forked child
    can let go of it. `wake` is called by another thread when a name has been looked up and the
    files of `secure` have been read. `secure` None: plain text.
    """

    def __init__(
        self, target: Target, wake: Callable[[], None], secure: TlsSettings | None = None
    ) -> None:
        self.socket: socket.socket | None = None
        self._left = list(target.addresses)
        needless = target.addresses and secure is None
        self._lookup = None if needless else _Lookup(target, secure, wake)
        self._server_name = (secure and secure.server_name) or target.host
        self._context: ssl.SSLContext | None = None
        self._connected = False
        self._tls: Tls | None = None

    @property
    def looking(self) -> bool:
        """A name is being looked up or a file read, which takes as long as it takes."""
        return self._lookup is not None

    def advance(self) -> bool:
        """Whether `socket` is connected now, and TLS agreed on.

        Raises OSError where no address answers.
        """
        if self._lookup is not None:
            if not self._lookup.done:
                return False
            self._left, self._context = self._lookup.result()
            self._lookup = None
        while True:
            try:
                self._connected = self._connected or self._try()
                return self._connected and self._agree()
            except OSError:
                self.close()
                if not self._left:
                    raise

    def close(self) -> None:
        """Give up, or hang up; nothing is sent."""
        self._connected = False
        self._tls = None
        if self.socket is not None:
            with forking.lock:
                self.socket.close()
                self.socket = None

    def forget(self) -> None:
        """Somebody has closed the descriptor under our feet: it may be another's by now."""
        if self.socket is not None:
            self.socket.detach()
            self.socket = None

    def interest(self, more: bool) -> tuple[int, int]:
        """The descriptor and the events to wait for; `more`: there is something to send."""
        if self.socket is None:
            return -1, 0
        if not self._connected:
            return self.socket.fileno(), select.POLLOUT
        more = more or (self._tls is not None and bool(self._tls.out))
        return self.socket.fileno(), select.POLLIN | (select.POLLOUT if more else 0)

    def receive(self) -> bytes | None:
        """What has come; None: nothing yet; b"": the peer has closed. Raises OSError."""
        assert self.socket is not None
        try:
            data = self.socket.recv(_CHUNK_BYTES)
        except BlockingIOError:
            # What came together with the end of the handshake is here already.
            return None if self._tls is None else self._tls.open()
        if self._tls is None:
            return data
        self._tls.arrive(data)
        return self._tls.open()

    def send(self, plain: bytearray) -> None:
        """Send what the kernel takes, and take it away from the front. Raises OSError."""
        if self._tls is None:
            self._push(plain)
            return
        self._push(self._tls.out)
        if plain and not self._tls.out:
            self._tls.seal(plain)
            self._push(self._tls.out)

    def _push(self, out: bytearray) -> None:
        if out and self.socket is not None:
            with suppress(BlockingIOError):
                # No signal: an engine may have given SIGPIPE its deadly default back.
                del out[: self.socket.send(out, socket.MSG_NOSIGNAL)]

    def _agree(self) -> bool:
        """Whether TLS, where it is wanted, is agreed on."""
        if self._context is None or self.socket is None:
            return True
        if self._tls is None:
            self._tls = _tls_module().Tls(self._context, self._server_name)
        else:
            try:
                self._tls.arrive(self.socket.recv(_CHUNK_BYTES))
            except BlockingIOError:
                pass
            except ConnectionError:
                self._tls.arrive(b"")
        try:
            return self._tls.agree()
        finally:
            with suppress(OSError):
                self._push(self._tls.out)

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


def _tls_module() -> ModuleType:
    # Under the lock as every import of a thread of ours, for the sake of a fork.
    with forking.lock:
        from stepwarden_agent.wire import tls
    return tls


class _Lookup:
    """Looks a name up and reads certificates in a short-lived thread.

    A name server or a file system may take its time, the beats not.
    """

    def __init__(
        self, target: Target, secure: TlsSettings | None, wake: Callable[[], None]
    ) -> None:
        self._target = target
        self._secure = secure
        self._wake = wake
        self._found: list[Address] = []
        self._context: ssl.SSLContext | None = None
        self._error: OSError | None = None
        self.done = False
        threading.Thread(target=self._run, name="stepwarden-lookup", daemon=True).start()

    def result(self) -> tuple[list[Address], ssl.SSLContext | None]:
        """The addresses, and what TLS needs. Raises OSError where there are none."""
        if self._error is not None:
            raise self._error
        return self._found, self._context

    def _run(self) -> None:
        target = self._target
        try:
            if self._secure is not None:
                self._context = _tls_module().make_context(self._secure)
            found = target.addresses or addresses_of(target.host, target.port, numeric=False)
            self._found = list(found)
        except TlsError as error:
            self._error = error
        except Exception as error:  # such as an ssl module that is not there
            self._error = OSError(str(error))
        self.done = True
        with suppress(Exception):
            self._wake()
