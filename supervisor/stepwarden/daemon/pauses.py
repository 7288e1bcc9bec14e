"""The pauses between tries of something that is tried until it is done."""

from __future__ import annotations

import asyncio

from stepwarden.core.deadline import clamp_timeout

FIRST_SECONDS = 1.0
MOST_SECONDS = 30.0
"""What failed is tried again, at first often and then this often."""


class Pauses:
    """Each is twice as long as the one before, up to MOST_SECONDS."""

    def __init__(self) -> None:
        self._next = FIRST_SECONDS

    async def wait(self) -> None:
        """The next pause."""
        await asyncio.sleep(clamp_timeout(self._next) or 0.0)
        self._next = min(2 * self._next, MOST_SECONDS)
