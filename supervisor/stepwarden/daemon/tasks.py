"""Tasks of the daemon that nobody awaits: kept until they end, and their faults told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from stepwarden.core.deadline import clamp_timeout
from stepwarden.core.event import Event, Kind


class Tasks:
    """Starts tasks on the running loop."""

    def __init__(self, note: Callable[[Event], None]) -> None:
        self._note = note
        self._running: set[asyncio.Task[None]] = set()
        self._owed: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run it in a task of its own."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    def start_owed(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """As `start`, of what has to be done before the daemon may end; it ends by itself soon."""
        task = self.start(work)
        self._owed.add(task)
        return task

    async def finish(self, seconds: float) -> None:
        """Wait for all that is owed, for so long at most."""
        if self._owed:
            await asyncio.wait(self._owed, timeout=clamp_timeout(seconds))

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._owed.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._note(Event(Kind.DAEMON, f"an action failed: {type(error).__name__}: {error}"))
