"""A message bus on a real socket, with a peer that answers what a test wants it to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from jeepney import Message, Parser, new_method_return
from stepwarden.edge.systemd_bus import SystemdBus

Answer = Callable[[Message], list[Message]]
"""What is sent for a message that came; nothing: no answer."""

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def polite(answer: Answer) -> Answer:
    """Says hello and takes matches; everything else is for `answer`."""

    def respond(message: Message) -> list[Message]:
        member = message.header.fields[3]
        if member == "Hello":
            return [new_method_return(message, "s", (":1.7",))]
        return [new_method_return(message)] if member == "AddMatch" else answer(message)

    return respond


def silent(_: Message) -> list[Message]:
    """Never an answer."""
    return []


async def authenticate(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The other side's half of saying who one is."""
    assert (await reader.readline()).startswith(b"\0AUTH EXTERNAL ")
    writer.write(b"OK 0123456789abcdef0123456789abcdef\r\n")
    assert await reader.readline() == b"BEGIN\r\n"


@asynccontextmanager
async def listening(
    folder: Path,
    serve: Serve,
) -> AsyncIterator[SystemdBus]:
    """A bus whose other side is `serve`."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_unix_server(connected, folder / "bus")
    bus = SystemdBus(f"unix:path={folder}/bus")
    try:
        yield bus
    finally:
        bus.close()
        server.close()


def answering(answer: Answer) -> Serve:
    """A bus that gives these messages for each that comes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await authenticate(reader, writer)
        parser, serial = Parser(), 0
        while data := await reader.read(4096):
            parser.add_data(data)
            while (message := parser.get_next_message()) is not None:
                for reply in polite(answer)(message):
                    serial += 1
                    writer.write(reply.serialise(serial))

    return serve
