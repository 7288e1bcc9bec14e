"""Serves the page of metrics by HTTP/1.1, on a thread and an event loop of its own.

It shares nothing with the verdict loop but what the page reads. Everything that a client can use
up is bounded: connections (from the first instant: TLS is agreed on within that bound), the size of
a request, the time until it is there and until its answer is taken. Where too many come, the one
that has been there longest has to go.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline
from stepwarden.edge.certificates import Certificates
from stepwarden.edge.listen import Target, TcpTarget, listen_by_ourselves
from stepwarden.edge.metrics_page import CONTENT_TYPE, MetricsPage
from stepwarden.errors import RefusedError, StepwardenError
from stepwarden.waiting import timeout_for, wait

MOST_CONNECTIONS = 16
MOST_REQUEST_BYTES = 8192
REQUEST_SECONDS = 5.0
"""For TLS and the request together."""

ANSWER_SECONDS = 30.0
"""Until a client has taken its answer."""

_START_SECONDS = 10.0
_JOIN_SECONDS = 2.0
_CLOSE_SECONDS = 0.5
_REST_SECONDS = 1.0
"""Where no connection can be taken, for want of a descriptor, say."""

_BACKLOG = 32
_HINT = b"stepwarden: metrics are at /metrics\n"
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
}


class MetricsServer:
    """Serves `page` on `targets`. `certificates`: what it shows, to be refreshed.

    `told` hears, in the loop that called `start`, of the first page that could not be made.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        page: MetricsPage,
        clock: Clock,
        told: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._targets = tuple(targets)
        self._page = page
        self._clock = clock
        self._told = told
        self._sockets: list[tuple[socket.socket, Certificates | None]] = []
        self.certificates: list[Certificates] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._failed: str | None = None
        self._starter: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._faulty = False
        self._serving: dict[asyncio.Task[None], None] = {}

    def start(self) -> None:
        """Listen and serve; without targets nothing is done.

        AlreadyRunningError, RefusedError: an address cannot be had, or the thread that serves did
        not come up; then nothing is held.
        """
        if not self._targets:
            return
        try:
            for target in self._targets:
                self._sockets.append(self._bind(target))
        except StepwardenError:
            self._close_sockets()
            raise
        with suppress(RuntimeError):  # without a loop, the thread tells by itself
            self._starter = asyncio.get_running_loop()
        ready = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(ready,), name="metrics", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError as error:  # no thread is to be had
            self._thread = None
            self._close_sockets()
            raise RefusedError(f"cannot serve metrics: {error}") from error
        if not ready.wait(_START_SECONDS) or self._failed is not None:
            why = self._failed or f"its thread is not there after {_START_SECONDS:g} s"
            self.shutdown()
            raise RefusedError(f"cannot serve metrics: {why}")

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

    def _bind(self, target: Target) -> tuple[socket.socket, Certificates | None]:
        if not isinstance(target, TcpTarget):
            raise RefusedError(f"cannot serve metrics on {target}: use HOST:PORT")
        bound, certificates = listen_by_ourselves(target, _BACKLOG)
        bound.setblocking(False)
        if certificates is not None:
            self.certificates.append(certificates)
        return bound, certificates

    def _close_sockets(self) -> None:
        for one, _ in self._sockets:
            one.close()
        self._sockets.clear()
        self.certificates.clear()

    def _run(self, ready: threading.Event) -> None:
        try:
            asyncio.run(self._serve(ready))
        except Exception as error:  # whoever waits for the start hears of it
            self._failed = f"{type(error).__name__}: {error}"
            if ready.is_set():
                self._tell(f"the metrics are not served any more: {self._failed}")
        finally:
            ready.set()

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        # What a client does to its connection is none of our log's business.
        self._loop.set_exception_handler(lambda *_: None)
        for one, certificates in self._sockets:
            self._loop.add_reader(one, self._accept, one, certificates)
        ready.set()
        await self._stop.wait()
        for one, _ in self._sockets:
            self._loop.remove_reader(one)
        for task in list(self._serving):
            task.cancel()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        if left:
            await asyncio.wait(left, timeout=_CLOSE_SECONDS)

    def _accept(self, listening: socket.socket, certificates: Certificates | None) -> None:
        assert self._loop is not None
        try:
            client, _ = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:
            self._loop.remove_reader(listening)
            self._loop.call_later(_REST_SECONDS, self._accept_again, listening, certificates)
            return
        while len(self._serving) >= MOST_CONNECTIONS:
            oldest = next(iter(self._serving))
            del self._serving[oldest]
            oldest.cancel()
        task = self._loop.create_task(self._connected(client, certificates))
        self._serving[task] = None
        task.add_done_callback(lambda ended: self._gone(ended, client))

    def _accept_again(self, listening: socket.socket, certificates: Certificates | None) -> None:
        assert self._loop is not None
        assert self._stop is not None
        if not self._stop.is_set():
            self._loop.add_reader(listening, self._accept, listening, certificates)

    def _gone(self, task: asyncio.Task[None], client: socket.socket) -> None:
        self._serving.pop(task, None)
        # A task that was cancelled before its first step has closed nothing.
        client.close()

    async def _connected(self, client: socket.socket, certificates: Certificates | None) -> None:
        try:
            deadline = Deadline.after(self._clock.monotonic(), REQUEST_SECONDS)
            async with asyncio.timeout(timeout_for(deadline, self._clock)):
                reader, writer = await _streams(client, certificates)
            try:
                await self._exchange(reader, writer, deadline)
            finally:
                # What the client has not taken yet must not keep the connection.
                writer.transport.abort()
        except (OSError, EOFError, ValueError, asyncio.CancelledError):
            self._page.dropped += 1

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, deadline: Deadline
    ) -> None:
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
            found = self._rendered()
        else:
            found = _response(200 if target == b"/" else 404, _HINT)
        return found if method == b"GET" else found[:1]

    def _tell(self, text: str) -> None:
        if self._starter is None:
            self._told(text)
            return
        with suppress(RuntimeError):  # that loop has ended
            self._starter.call_soon_threadsafe(self._told, text)

    def _rendered(self) -> tuple[bytes, ...]:
        try:
            page = self._page.render()
        except Exception as error:  # a fault of ours: the one who scrapes must see that it is one
            if not self._faulty:
                self._tell(f"a fault of ours in the metrics page: {type(error).__name__}: {error}")
            self._faulty = True
            return _response(500, b"the page of metrics could not be made\n")
        self._faulty = False
        return _response(200, page, kind=CONTENT_TYPE)


async def _streams(
    client: socket.socket, certificates: Certificates | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Both ways of a connection, once TLS is agreed on where it is wanted."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(MOST_REQUEST_BYTES)
    protocol = asyncio.StreamReaderProtocol(reader)
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol, client, ssl=None if certificates is None else certificates.context()
    )
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


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
