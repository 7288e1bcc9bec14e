"""The lowest layer of every wait: a deadline in, a timeout that is never negative down below.

Many waiting functions read a negative timeout as "without limit", so a deadline that has gone
stale on its way down must become an immediate time-out. All functions here

- take what is left from an absolute `Deadline` at the last moment, and clamp it again;
- take an answer that is ready even when nothing is left: what has arrived counts;
- wait without limit for `Deadline.never()` and for nothing else.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol, TypeVar

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline, clamp_timeout

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Pollable(Protocol[T_co]):
    """A queue of threads or processes: `queue.Queue`, `multiprocessing.Queue` and their like."""

    def get(self, block: bool = True, timeout: float | None = None) -> T_co:
        """The next item; raises `queue.Empty` when none came in time."""


class AnswersMissingError(TimeoutError):
    """Not all answers came in time. `answers`: those that did, by position; `missing`: the rest."""

    def __init__(self, answers: Mapping[int, object], missing: Sequence[int]) -> None:
        positions = ", ".join(map(str, missing))
        super().__init__(
            f"no answer in time from {len(missing)} of {len(answers) + len(missing)}: {positions}"
        )
        self.answers = dict(answers)
        self.missing = tuple(missing)


def timeout_for(deadline: Deadline, clock: Clock) -> float | None:
    """Seconds that a wait may take now: never negative, never NaN; None: no limit, by choice."""
    return clamp_timeout(deadline.remaining(clock.monotonic()))


async def wait(
    awaitable: Awaitable[T],
    deadline: Deadline,
    clock: Clock,
    unclaimed: Callable[[T], None] | None = None,
) -> T:
    """Its result, or TimeoutError once the deadline has passed; it is cancelled then.

    Unlike `asyncio.wait_for` with 0, a coroutine gets one turn of the loop in any case, so that
    an item that already lies in a queue is taken. `unclaimed` gets a result that came when nobody
    waited any more: whoever waited was cancelled in the very turn in which it was ready. None: a
    result needs no care.
    """
    task = asyncio.ensure_future(awaitable)
    try:
        await asyncio.wait({task}, timeout=timeout_for(deadline, clock))
    except asyncio.CancelledError:
        _give_up(task, unclaimed)
        raise
    if task.done():
        return task.result()
    _give_up(task, unclaimed)
    raise TimeoutError("no result before the deadline")


def _give_up(task: asyncio.Future[T], unclaimed: Callable[[T], None] | None) -> None:
    def ended(_: asyncio.Future[T]) -> None:
        # Looking at the exception keeps asyncio from complaining of it.
        if not task.cancelled() and task.exception() is None and unclaimed is not None:
            unclaimed(task.result())

    task.add_done_callback(ended)
    task.cancel()


def poll(source: Pollable[T], deadline: Deadline, clock: Clock) -> T:
    """The next item of a queue, or TimeoutError once the deadline has passed.

    Blocks the calling thread; not for the loop's own thread unless the deadline has passed.
    """
    try:
        return source.get(timeout=timeout_for(deadline, clock))
    except queue.Empty:
        raise TimeoutError("nothing in the queue before the deadline") from None


def collect(
    sources: Sequence[Pollable[T] | Future[T]], deadline: Deadline, clock: Clock
) -> list[T]:
    """One answer of each, in their order, under one absolute deadline that all of them share.

    The first may use it up; the others then get 0 seconds, which still takes what is ready.
    Raises `AnswersMissingError` with what did come. An exception that a future holds is raised.
    """
    answers: dict[int, T] = {}
    missing: list[int] = []
    for position, source in enumerate(sources):
        try:
            answers[position] = _one(source, deadline, clock)
        except TimeoutError:
            if isinstance(source, Future) and source.done():
                raise  # the answer itself is an error of this kind
            missing.append(position)
    if missing:
        raise AnswersMissingError(answers, missing)
    return [answers[position] for position in range(len(sources))]


def _one(source: Pollable[T] | Future[T], deadline: Deadline, clock: Clock) -> T:
    if isinstance(source, Future):
        return source.result(timeout_for(deadline, clock))
    return poll(source, deadline, clock)
