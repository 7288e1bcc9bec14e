"""One thing done again and again in a task of its own, never twice at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline, clamp_timeout

LEAST_PAUSE = 0.05
"""Seconds between two turns even where one took longer than the interval."""


class Periodic:
    """Calls `turn` each `interval` seconds, from begin to begin, until it returns False.

    A turn that takes longer delays the next one; none is made up for.
    """

    def __init__(self, turn: Callable[[], Awaitable[bool]], interval: float, clock: Clock) -> None:
        self._turn = turn
        self._interval = interval
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """True from `start` until `turn` returned False or `close` was called."""
        return self._task is not None and not self._task.done()

    def start(self) -> None:
        """Begin, on the running loop, with a turn at once."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._go_on())

    async def close(self) -> None:
        """Give up what is under way; returns when that has ended."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _go_on(self) -> None:
        while True:
            due = Deadline.after(self._clock.monotonic(), self._interval)
            if not await self._safely():
                return
            now = self._clock.monotonic()
            pause = clamp_timeout(due.not_before(now + LEAST_PAUSE).remaining(now))
            if pause is None:
                return
            await asyncio.sleep(pause)

    async def _safely(self) -> bool:
        try:
            return await self._turn()
        except Exception as error:  # a fault of ours: told, and tried again
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a periodic look failed", "exception": error}
            )
            return True
