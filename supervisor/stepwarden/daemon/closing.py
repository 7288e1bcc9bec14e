"""The end of the daemon's parts: everything is closed, whatever becomes of the one before."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable

Close = Callable[[], Awaitable[None] | None]


async def close_all(steps: Iterable[Close], fault: Callable[[Exception], None]) -> None:
    """Take these steps, one after the other. `fault`: told of each that raises.

    Cancelled, the rest is still closed, and then that passes.
    """
    cancelled: asyncio.CancelledError | None = None
    for step in steps:
        try:
            ending = step()
            if inspect.isawaitable(ending):
                await ending
        except asyncio.CancelledError as error:
            cancelled = error
        except Exception as error:  # what is still open must not stay so for that
            fault(error)
    if cancelled is not None:
        raise cancelled
