"""Small TCP servers on a running loop: each connection gets what a handler writes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def tcp_server(
    handler: Handler, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Listens on the loopback and gives its port; its connections end with it."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with suppress(ConnectionError, asyncio.CancelledError):
            await handler(reader, writer)
        writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", port, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


def answering(raw: bytes) -> Handler:
    """Reads a request and gives these bytes."""

    async def handler(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(raw)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    return handler


def page(body: bytes, status: str = "200 OK") -> bytes:
    """A plain HTTP answer."""
    return b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    """Takes the connection and never answers."""
    await reader.read()
