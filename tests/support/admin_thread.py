"""A real AdminServer in a thread of this process, so that its options can be changed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from stepwarden.clock import SystemClock
from stepwarden.edge.admin_service import AdminServer
from stepwarden.edge.listen import UnixTarget

from support.backend import GEMMA, Backend


class AdminThread:
    """Serves on `path`, with one past event, "the first"."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._backend = Backend()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: AdminServer | None = None

    def after(self, seconds: float, sentence: str) -> Callable[[], None]:
        """Publish an event in so many seconds; returns what takes that back."""
        timer = threading.Timer(
            seconds,
            lambda: self._loop.call_soon_threadsafe(self._backend.record, sentence, GEMMA.name),
        )
        timer.start()
        return timer.cancel

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._start)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._do(self._stop)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> None:
        self._server = AdminServer(UnixTarget(self._path), self._backend, SystemClock())
        self._backend.publish = self._server.publish
        self._backend.record("the first", GEMMA.name)
        await self._server.start()

    async def _stop(self) -> None:
        assert self._server is not None
        await self._server.stop()

    def _do(self, work: Callable[[], object]) -> None:
        asyncio.run_coroutine_threadsafe(work(), self._loop).result(30)  # type: ignore[arg-type]
