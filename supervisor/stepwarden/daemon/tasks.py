"""Tasks of the daemon that nobody awaits: kept until they end, and their faults told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from stepwarden.core.event import Event, Kind


class Tasks:
    """Starts tasks on the running loop."""

    def __init__(self, note: Callable[[Event], None]) -> None:
        self._note = note
        self._running: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Run it in a task of its own."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._note(Event(Kind.DAEMON, f"an action failed: {type(error).__name__}: {error}"))
