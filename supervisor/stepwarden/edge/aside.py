"""Blocking calls in a thread of their own: one at a time, and one that hangs holds up nobody.

A name server or a network file system may let a call hang for minutes, and nothing ends it. The
loop's own pool would fill with such threads, and the end of the program would wait for them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline
from stepwarden.waiting import wait

T = TypeVar("T")


class Aside:
    """At most one thread, which ends with its call and is not waited for at the program's end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._call: Future[Any] | None = None

    async def call(self, work: Callable[[], T], deadline: Deadline) -> T:
        """What `work` returns or raises. TimeoutError: not by the deadline; it may hang on.

        TimeoutError at once while a former call hangs. OSError where no thread is to be had.
        """
        if self._call is not None and not self._call.done():
            raise TimeoutError("an earlier call still hangs")
        call: Future[T] = Future()
        call.set_running_or_notify_cancel()  # from here on nobody's giving up can cancel it
        try:
            threading.Thread(target=_run, args=(call, work), name="aside", daemon=True).start()
        except RuntimeError as error:
            raise OSError(str(error)) from None
        self._call = call
        return await wait(asyncio.wrap_future(call), deadline, self._clock)


def _run(call: Future[T], work: Callable[[], T]) -> None:
    try:
        result = work()
    except Exception as error:  # whatever it is belongs to the one who asked
        call.set_exception(error)
    else:
        call.set_result(result)
