"""A TCP proxy that can stop forwarding and closes nothing, as a network that drops packets."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self


class StallingProxy:
    """Forwards connections to `port` of the loopback; its own port is `port` of the instance."""

    def __init__(self, port: int) -> None:
        self.port = 0
        self.accepted = 0
        self._target = port
        self._server: asyncio.Server | None = None
        self._flows = threading.Event()
        self._flows.set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def stall(self) -> None:
        """From now on nothing gets through; who connects is accepted and hears nothing."""
        self._flows.clear()

    def flow(self) -> None:
        """New connections get through again; what was on the way when it stalled is lost."""
        self._flows.set()

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result(10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _serve(self) -> None:
        self._server = server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        assert self._server is not None
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        stalled_from_the_start = not self._flows.is_set()
        writers = [writer]
        with suppress(OSError, asyncio.CancelledError):  # cancelled: the end of the test
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            writers.append(far_writer)
            ways = [(reader, far_writer), (far_reader, writer)]
            dead = [stalled_from_the_start]
            await asyncio.gather(*(self._forward(*way, dead) for way in ways))
        for each in writers:
            each.close()

    async def _forward(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, dead: list[bool]
    ) -> None:
        """`dead`: whether something of this connection was lost; then all that follows is too."""
        while data := await reader.read(65536):
            dead[0] = dead[0] or not self._flows.is_set()
            if not dead[0]:
                writer.write(data)
                await writer.drain()
        if not dead[0]:
            writer.close()
