"""Waits take what is left of a deadline, clamped again, and what is ready in any case."""

from __future__ import annotations

import asyncio
import math
import queue
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from stepwarden.clock import SystemClock
from stepwarden.core.deadline import Deadline
from stepwarden.waiting import AnswersMissingError, collect, poll, timeout_for, wait
from support.clocks import FakeClock


class SlowQueue:
    """A queue with a fake clock: its answer comes `after` seconds of waiting; notes the timeouts.

    Refuses negative timeouts, as `queue.Queue` does and as worse ones do not.
    """

    def __init__(self, clock: FakeClock, after: float = 0.0, answer: str = "answer") -> None:
        self.clock, self.after, self.answer = clock, after, answer
        self.timeouts: list[float | None] = []

    def get(self, block: bool = True, timeout: float | None = None) -> str:
        assert block
        assert timeout is None or timeout >= 0.0
        self.timeouts.append(timeout)
        if timeout is not None and self.after > timeout:
            self.clock.now += timeout
            raise queue.Empty
        self.clock.now += self.after
        return self.answer


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(now=100.0)


def test_a_stale_deadline_gives_0_to_the_waiting_layer(clock: FakeClock) -> None:
    """It passed 5 s ago; the call times out at once."""
    slow = SlowQueue(clock, after=9.0)
    with pytest.raises(TimeoutError):
        poll(slow, Deadline(95.0), clock)
    assert slow.timeouts == [0.0]
    assert clock.now == 100.0


def test_none_waits_without_limit_by_explicit_choice(clock: FakeClock) -> None:
    slow = SlowQueue(clock, after=1e6)
    assert poll(slow, Deadline.never(), clock) == "answer"
    assert slow.timeouts == [None]


@pytest.mark.parametrize(
    ("at", "timeout"),
    [(105.0, 5.0), (100.0, 0.0), (95.0, 0.0), (-math.inf, 0.0), (math.nan, 0.0), (math.inf, None)],
)
def test_the_lowest_layer_clamps_again(at: float, timeout: float | None, clock: FakeClock) -> None:
    assert timeout_for(Deadline(at), clock) == timeout


def test_several_answers_share_one_deadline(clock: FakeClock) -> None:
    """The first takes 4 of 5 seconds, the second the last one; the third gets 0 and is ready."""
    slow = [SlowQueue(clock, 4.0, "a"), SlowQueue(clock, 1.0, "b"), SlowQueue(clock, 0.0, "c")]
    assert collect(slow, Deadline(105.0), clock) == ["a", "b", "c"]
    assert [each.timeouts for each in slow] == [[5.0], [1.0], [0.0]]


def test_draining_the_first_may_leave_nothing_for_the_rest(clock: FakeClock) -> None:
    slow = [SlowQueue(clock, 9.0), SlowQueue(clock, 0.1), SlowQueue(clock, 0.0, "ready")]
    with pytest.raises(AnswersMissingError, match="from 2 of 3: 0, 1") as raised:
        collect(slow, Deadline(105.0), clock)
    assert raised.value.answers == {2: "ready"}
    assert raised.value.missing == (0, 1)
    assert [each.timeouts for each in slow] == [[5.0], [0.0], [0.0]]


def test_a_ready_answer_is_taken_even_at_0(clock: FakeClock) -> None:
    real: queue.Queue[str] = queue.Queue()
    real.put("here")
    assert poll(real, Deadline(0.0), clock) == "here"
    done: Future[str] = Future()
    done.set_result("done")
    assert collect([done], Deadline(0.0), clock) == ["done"]


def test_a_failed_answer_is_not_a_missing_one(clock: FakeClock) -> None:
    failed: Future[str] = Future()
    failed.set_exception(TimeoutError("its own"))
    with pytest.raises(TimeoutError, match="its own"):
        collect([failed], Deadline(0.0), clock)


def test_nothing_to_collect_is_complete(clock: FakeClock) -> None:
    assert collect([], Deadline(0.0), clock) == []


def test_answers_of_real_threads_are_collected_under_one_deadline() -> None:
    clock, release = SystemClock(), threading.Event()
    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(release.wait, 60.0) for _ in range(3)]
        with pytest.raises(AnswersMissingError) as raised:
            collect(futures, Deadline.after(clock.monotonic(), 0.05), clock)
        assert raised.value.missing == (0, 1, 2)
        release.set()
        assert collect(futures, Deadline.after(clock.monotonic(), 60.0), clock) == [True] * 3


async def item_of(source: asyncio.Queue[str]) -> str:
    return await source.get()


def test_a_coroutine_that_finds_its_item_is_taken_at_0(clock: FakeClock) -> None:
    async def main() -> str:
        source: asyncio.Queue[str] = asyncio.Queue()
        source.put_nowait("here")
        return await wait(item_of(source), Deadline(95.0), clock)

    assert asyncio.run(main()) == "here"


def test_a_stale_deadline_ends_a_wait_at_once_and_cancels(clock: FakeClock) -> None:
    async def main() -> None:
        source: asyncio.Queue[str] = asyncio.Queue()
        task = asyncio.ensure_future(item_of(source))
        with pytest.raises(TimeoutError):
            await wait(task, Deadline(95.0), clock)
        await asyncio.wait({task})
        assert task.cancelled()

    asyncio.run(main())


def test_a_wait_without_limit_ends_with_its_result(clock: FakeClock) -> None:
    async def main() -> str:
        source: asyncio.Queue[str] = asyncio.Queue()
        asyncio.get_running_loop().call_later(0.01, source.put_nowait, "late")
        return await wait(item_of(source), Deadline.never(), clock)

    assert asyncio.run(main()) == "late"


def test_an_error_of_the_awaited_comes_through(clock: FakeClock) -> None:
    async def fails() -> None:
        raise LookupError("inside")

    with pytest.raises(LookupError, match="inside"):
        asyncio.run(wait(fails(), Deadline(95.0), clock))


def test_one_that_will_not_be_cancelled_holds_nobody_up(clock: FakeClock) -> None:
    async def stubborn(release: asyncio.Event) -> None:
        try:
            await release.wait()
        except asyncio.CancelledError:
            await release.wait()
            raise LookupError("much later") from None

    async def main() -> None:
        release = asyncio.Event()
        task = asyncio.ensure_future(stubborn(release))
        with pytest.raises(TimeoutError):
            await wait(task, Deadline(95.0), clock)
        release.set()
        await asyncio.wait({task})

    asyncio.run(main())


def test_who_is_cancelled_while_waiting_cancels_what_it_waits_for(clock: FakeClock) -> None:
    async def main() -> None:
        source: asyncio.Queue[str] = asyncio.Queue()
        inner = asyncio.ensure_future(item_of(source))
        outer = asyncio.ensure_future(wait(inner, Deadline.never(), clock))
        await asyncio.sleep(0)
        outer.cancel()
        await asyncio.wait({inner, outer})
        assert inner.cancelled()
        assert outer.cancelled()

    asyncio.run(main())


@pytest.mark.parametrize("given_up", [False, True])
def test_what_comes_in_the_turn_in_which_its_waiter_is_cancelled_is_not_lost(
    given_up: bool, clock: FakeClock
) -> None:
    async def main() -> list[str]:
        unclaimed: list[str] = []
        inner: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        outer = asyncio.ensure_future(
            wait(inner, Deadline.never(), clock, unclaimed=unclaimed.append)
        )
        await asyncio.sleep(0)
        inner.set_result("here")
        if given_up:
            outer.cancel()
        await asyncio.wait({outer})
        assert outer.cancelled() == given_up
        await asyncio.sleep(0)
        return unclaimed

    assert asyncio.run(main()) == ["here"] * given_up
