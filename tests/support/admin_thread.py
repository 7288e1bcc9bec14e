"""A real AdminServer in a thread of this process, so that its options can be changed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from stepwarden.clock import SystemClock
from stepwarden.edge.admin_service import AdminServer
from stepwarden.edge.listen import UnixTarget

from support.backend import GEMMA, Backend
from support.loop_thread import LoopThread


class AdminThread(LoopThread):
    """Serves on `path`, with one past event, "the first"."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._backend = Backend()
        self._server: AdminServer | None = None

    def after(self, seconds: float, sentence: str) -> Callable[[], None]:
        """Publish an event in so many seconds; returns what takes that back."""
        timer = threading.Timer(
            seconds,
            lambda: self._loop.call_soon_threadsafe(self._backend.record, sentence, GEMMA.name),
        )
        timer.start()
        return timer.cancel

    async def _start(self) -> None:
        self._server = AdminServer(UnixTarget(self._path), self._backend, SystemClock())
        self._backend.publish = self._server.publish
        self._backend.record("the first", GEMMA.name)
        await self._server.start()

    async def _stop(self) -> None:
        assert self._server is not None
        await self._server.stop()
