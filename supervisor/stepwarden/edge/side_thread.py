"""Questions to file systems that may hang, asked in a thread that nobody has to wait for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline
from stepwarden.waiting import wait

T = TypeVar("T")


async def aside(function: Callable[[], T], deadline: Deadline, clock: Clock) -> T:
    """Its result; TimeoutError once the deadline has passed, and then its thread is left alone.

    What it raises is raised here. A thread that hangs does not keep the program from ending.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = function()
        except Exception as error:
            tell(answer.set_exception, error)
        else:
            tell(answer.set_result, result)

    def tell(setter: Callable[..., None], value: object) -> None:
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, setter, value)

    def settle(setter: Callable[..., None], value: object) -> None:
        if not answer.done():
            setter(value)

    threading.Thread(target=run, name="aside", daemon=True).start()
    return await wait(answer, deadline, clock)
