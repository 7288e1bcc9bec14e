"""Serves the page of metrics by HTTP/1.1, on a thread and an event loop of its own.

It shares nothing with the verdict loop but what the page reads. Everything that a client can use
up is bounded: connections, the size of a request, the time until it is there and until its answer
is taken. Where too many come, the one that has been there longest has to go.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline
from stepwarden.edge.certificates import Certificates
from stepwarden.edge.listen import Target, TcpTarget, tls_of
from stepwarden.edge.metrics_page import CONTENT_TYPE, MetricsPage
from stepwarden.errors import AlreadyRunningError, RefusedError, StepwardenError
from stepwarden.waiting import wait

MOST_CONNECTIONS = 16
MOST_REQUEST_BYTES = 8192
REQUEST_SECONDS = 5.0
"""For TLS and the request together."""

ANSWER_SECONDS = 30.0
"""Until a client has taken its answer."""

_JOIN_SECONDS = 2.0
_CLOSE_SECONDS = 0.5
_CLOSE_ROUNDS = 3
_BACKLOG = 32
_HINT = b"stepwarden: metrics are at /metrics\n"
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed"}


class MetricsServer:
    """Serves `page` on `targets`. `certificates`: what it shows, to be refreshed."""

    def __init__(
        self,
        targets: Sequence[Target],
        page: MetricsPage,
        clock: Clock,
    ) -> None:
        self._targets = tuple(targets)
        self._page = page
        self._clock = clock
        self._sockets: list[tuple[socket.socket, ssl.SSLContext | None]] = []
        self.certificates: list[Certificates] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop: asyncio.Event | None = None
        self._serving: dict[asyncio.Task[None], None] = {}

    def start(self) -> None:
        """Listen and serve; without targets nothing is done.

        AlreadyRunningError, RefusedError: an address cannot be had; then nothing is held.
        """
        if not self._targets:
            return
        try:
            for target in self._targets:
                self._sockets.append(self._bind(target))
        except StepwardenError:
            self._close_sockets()
            raise
        ready = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(ready,), name="metrics", daemon=True
        )
        self._thread.start()
        ready.wait(_JOIN_SECONDS)

    @property
    def addresses(self) -> list[str]:
        """Where it listens, as HOST:PORT."""
        found = []
        for one, _ in self._sockets:
            host, port = one.getsockname()[:2]
            found.append(str(TcpTarget(host, port)))
        return found

    def shutdown(self) -> None:
        """Serve no more; waits for no client."""
        if self._thread is None:
            return
        loop, stop = self._loop, self._stop
        if loop is not None and stop is not None:
            with suppress(RuntimeError):  # it ended by itself
                loop.call_soon_threadsafe(stop.set)
        self._thread.join(_JOIN_SECONDS)
        self._thread = None
        self._close_sockets()

    def _bind(self, target: Target) -> tuple[socket.socket, ssl.SSLContext | None]:
        if not isinstance(target, TcpTarget):
            raise RefusedError(f"cannot serve metrics on {target}: use HOST:PORT")
        certificates = tls_of(target)
        if certificates is None:
            return _bound(target), None
        self.certificates.append(certificates)
        return _bound(target), certificates.context()

    def _close_sockets(self) -> None:
        for one, _ in self._sockets:
            one.close()
        self._sockets.clear()
        self.certificates.clear()

    def _run(self, ready: threading.Event) -> None:
        asyncio.run(self._serve(ready))

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        # What a client does to its connection is none of our log's business.
        self._loop.set_exception_handler(lambda *_: None)
        servers = [
            await asyncio.start_server(
                self._connected,
                sock=one,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else REQUEST_SECONDS,
                limit=MOST_REQUEST_BYTES,
                backlog=_BACKLOG,
            )
            for one, tls in self._sockets
        ]
        ready.set()
        await self._stop.wait()
        for one, _ in self._sockets:
            self._loop.remove_reader(one)
        for task in list(self._serving):
            task.cancel()
        for _ in range(_CLOSE_ROUNDS):  # what is being accepted comes to a task only then
            left = asyncio.all_tasks() - {asyncio.current_task()}
            if left:
                await asyncio.wait(left, timeout=_CLOSE_SECONDS)
        # Last: a connection that is just being accepted for a closed server is lost and not closed.
        for server in servers:
            server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        assert self._stop is not None
        if self._stop.is_set():
            writer.transport.abort()
            return
        while len(self._serving) >= MOST_CONNECTIONS:
            oldest = next(iter(self._serving))
            del self._serving[oldest]
            oldest.cancel()
        self._serving[task] = None
        try:
            await self._exchange(reader, writer)
        except (OSError, EOFError, ValueError, asyncio.CancelledError):
            self._page.dropped += 1
        finally:
            self._serving.pop(task, None)
            # What the client has not taken yet must not keep the connection.
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        deadline = Deadline.after(self._clock.monotonic(), REQUEST_SECONDS)
        head = await wait(_request(reader), deadline, self._clock)
        for part in self._answer(head):
            writer.write(part)
        deadline = Deadline.after(self._clock.monotonic(), ANSWER_SECONDS)
        await wait(_sent(writer), deadline, self._clock)

    def _answer(self, head: bytes) -> tuple[bytes, ...]:
        words = head.partition(b"\r\n")[0].split(b" ")
        if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
            return _response(400, b"not a request of HTTP/1.1\n")
        method, target = words[0], words[1].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _response(405, b"only GET and HEAD are served\n", b"Allow: GET, HEAD\r\n")
        if target == b"/metrics":
            found = _response(200, self._page.render(), kind=CONTENT_TYPE)
        else:
            found = _response(200 if target == b"/" else 404, _HINT)
        return found if method == b"GET" else found[:1]


async def _request(reader: asyncio.StreamReader) -> bytes:
    """The head of a request. ValueError for one that is too long."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise ValueError(str(error)) from None


async def _sent(writer: asyncio.StreamWriter) -> None:
    """Everything is with the client, or the connection is gone."""
    writer.write_eof() if writer.can_write_eof() else None
    writer.close()
    await writer.wait_closed()


def _response(
    status: int, body: bytes, more: bytes = b"", kind: str = "text/plain; charset=utf-8"
) -> tuple[bytes, bytes]:
    """Head and body."""
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n"
    )
    return head.encode("ascii") + more + b"\r\n", body


def _bound(target: TcpTarget) -> socket.socket:
    """A socket that listens there."""
    where = f"cannot listen on {target}"
    named = f" ({target.key} names it)" if target.key else ""
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        family, kind, protocol, _, address = found[0]
        one = socket.socket(family, kind, protocol)
    except OSError as error:
        raise RefusedError(f"{where}: {error.strerror or error}{named}") from error
    try:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        one.bind(address)
        one.listen(_BACKLOG)
    except OSError as error:
        one.close()
        text = f"{where}: {error.strerror or error}{named}"
        if error.errno == errno.EADDRINUSE:
            raise AlreadyRunningError(text) from error
        raise RefusedError(text) from error
    return one
