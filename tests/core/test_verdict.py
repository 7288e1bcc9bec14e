"""What a window of CPU means, and what follows at its end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.core.clocks import Cause, RunningClock
from stepwarden.core.deadline import Deadline
from stepwarden.core.evidence import CpuSample, ProcessId, Step
from stepwarden.core.verdict import (
    Activity,
    Ruling,
    Suspicion,
    judge,
    measure,
    open_suspicion,
)

RANK, CHILD, OTHER = ProcessId(10, 1), ProcessId(11, 2), ProcessId(12, 3)
BUSY = 5.0


def sample(at: float, state: str | None = "R", **seconds: float) -> CpuSample:
    names = {"rank": RANK, "child": CHILD, "other": OTHER}
    return CpuSample(at, {names[name]: value for name, value in seconds.items()}, state)


def clock(budget: float = 10.0, cap: float = 60.0, began: float = 0.0) -> RunningClock:
    return RunningClock(
        subject="0",
        cause=Cause.STEP,
        began=began,
        budget=budget,
        deadline=Deadline(began + budget),
        hard_cap=cap,
        cap_at=began + cap,
        arithmetic="10 s",
        step=Step(3, began, 8),
    )


def ruling(
    suspicion: Suspicion, after: CpuSample | None, now: float, lost: float = 0.0
) -> tuple[Ruling, Suspicion]:
    judged = judge(suspicion, after, now, window=5.0, busy_cpu=BUSY, lost=lost)
    return judged.ruling, judged.suspicion


@pytest.mark.parametrize(
    ("gained", "activity"),
    [
        (0.0, Activity.NOT_WORKING),
        (0.5, Activity.NOT_WORKING),  # exactly 5 % is not above
        (0.51, Activity.WORKING),
        (10.0, Activity.WORKING),
        (640.0, Activity.WORKING),  # 64 threads: 6400 %
    ],
)
def test_cpu_above_the_limit_is_working(gained: float, activity: Activity) -> None:
    found = measure(sample(0.0, rank=100.0), sample(10.0, rank=100.0 + gained), BUSY)
    assert found.activity is activity
    assert found.percent == pytest.approx(10.0 * gained)
    assert found.seconds == 10.0


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, sample(10.0, rank=5.0)),
        (sample(0.0, rank=5.0), None),
        (None, None),
        (sample(10.0, rank=0.0), sample(10.0, rank=9.0)),  # the same instant
        (sample(10.0, rank=0.0), sample(9.0, rank=9.0)),  # out of order
    ],
)
def test_without_two_samples_nothing_is_known(
    before: CpuSample | None, after: CpuSample | None
) -> None:
    found = measure(before, after, BUSY)
    assert found.activity is Activity.UNKNOWN
    assert found.percent is None


@pytest.mark.parametrize("state", ["T", "Z", "X"])
def test_a_stopped_or_dead_process_does_not_work_whatever_it_used(state: str) -> None:
    found = measure(sample(0.0, rank=0.0), sample(10.0, state, rank=9.0), BUSY)
    assert found.activity is Activity.NOT_WORKING
    assert found.state == state


@pytest.mark.parametrize("state", ["T", "Z"])
def test_a_stopped_process_is_known_by_its_first_sample(state: str) -> None:
    assert measure(None, sample(10.0, state, rank=9.0), BUSY).activity is Activity.NOT_WORKING


@pytest.mark.parametrize("state", ["R", "S", "D", "t", "I", None])
def test_in_every_other_state_its_cpu_decides(state: str | None) -> None:
    """`t` too: a profiler holds a working process there for a moment."""
    busy = measure(sample(0.0, rank=0.0), sample(10.0, state, rank=9.0), BUSY)
    idle = measure(sample(0.0, rank=0.0), sample(10.0, state, rank=0.1), BUSY)
    assert busy.activity is Activity.WORKING
    assert idle.activity is Activity.NOT_WORKING


def test_children_count() -> None:
    before = sample(0.0, rank=1.0, child=2.0)
    assert measure(before, sample(10.0, rank=1.0, child=9.0), BUSY).percent == pytest.approx(70.0)


def test_a_new_child_counts_with_all_that_it_used() -> None:
    found = measure(sample(0.0, rank=1.0), sample(10.0, rank=1.0, child=3.0), BUSY)
    assert found.percent == pytest.approx(30.0)


def test_a_vanished_child_does_not_make_it_negative() -> None:
    before = sample(0.0, rank=1.0, child=500.0)
    found = measure(before, sample(10.0, rank=8.0), BUSY)
    assert found.percent == 0.0
    assert found.activity is Activity.UNKNOWN


def test_the_old_cpu_of_a_reaped_child_is_no_work_of_this_window() -> None:
    """It came back in the parent's total; it may be all of what the parent gained, or none."""
    before = sample(0.0, rank=1.0, child=500.0)
    reaped = measure(before, sample(10.0, rank=501.0), BUSY)
    assert reaped.activity is Activity.UNKNOWN
    worked = measure(before, sample(10.0, rank=509.0), BUSY)
    assert worked.activity is Activity.WORKING
    assert worked.percent == pytest.approx(80.0)


def test_a_vanished_child_does_not_hide_that_nothing_works() -> None:
    before = sample(0.0, rank=1.0, child=500.0)
    assert measure(before, sample(10.0, rank=1.0), BUSY).activity is Activity.NOT_WORKING


def test_samples_close_together_say_nothing() -> None:
    """CPU is counted in ticks of 10 ms."""
    found = measure(sample(0.0, rank=1.0), sample(0.1, rank=1.0), BUSY, at_least=2.5)
    assert found.activity is Activity.UNKNOWN


def test_time_in_which_our_host_stood_still_does_not_thin_the_cpu_out() -> None:
    """0.4 s of CPU in 20 s are 2 %; in the 5 s that were not lost they are 8 %."""
    before, after = sample(0.0, rank=0.0), sample(20.0, rank=0.4)
    assert measure(before, after, BUSY).activity is Activity.NOT_WORKING
    assert measure(before, after, BUSY, lost=15.0).activity is Activity.UNKNOWN
    assert measure(before, sample(20.0, rank=0.0), BUSY, lost=15.0).activity is Activity.NOT_WORKING


def test_before_the_end_of_the_window_nothing_is_judged() -> None:
    suspicion = open_suspicion(clock(), 5.0, sample(10.0, rank=0.0), 10.0)
    assert ruling(suspicion, sample(14.9, "T", rank=0.0), 14.9) == (Ruling.WAIT, suspicion)


def test_not_working_over_the_window_is_dead() -> None:
    suspicion = open_suspicion(clock(), 5.0, sample(10.0, rank=0.0), 10.0)
    assert ruling(suspicion, sample(15.0, rank=0.0), 15.0)[0] is Ruling.DEAD


@pytest.mark.parametrize("after", [sample(15.0, rank=4.0), None])
def test_working_or_unknown_gets_another_window(after: CpuSample | None) -> None:
    suspicion = open_suspicion(clock(), 5.0, sample(10.0, rank=0.0), 10.0)
    answer, renewed = ruling(suspicion, after, 15.0)
    assert answer is Ruling.UNHEALTHY_RETRY
    assert (renewed.windows, renewed.opened_at, renewed.baseline) == (2, 15.0, after)
    assert ruling(renewed, after, 19.9)[0] is Ruling.WAIT


def test_each_window_is_measured_by_itself() -> None:
    """It worked in the first window and stood in the second."""
    suspicion = open_suspicion(clock(), 5.0, sample(10.0, rank=0.0), 10.0)
    _, second = ruling(suspicion, sample(15.0, rank=5.0), 15.0)
    assert ruling(second, sample(20.0, rank=5.0), 20.0)[0] is Ruling.DEAD


def test_at_the_hard_cap_a_busy_rank_is_dead() -> None:
    short = clock(cap=18.0)
    suspicion = open_suspicion(short, 5.0, sample(10.0, rank=0.0), 10.0)
    answer, renewed = ruling(suspicion, sample(15.0, rank=5.0), 15.0)
    assert answer is Ruling.UNHEALTHY_RETRY
    assert renewed.due(0.0).at == 18.0
    assert ruling(renewed, sample(17.9, rank=8.0), 17.9)[0] is Ruling.WAIT
    judged = judge(renewed, sample(18.0, rank=8.0), 18.0, window=5.0, busy_cpu=BUSY)
    assert judged.ruling is Ruling.DEAD
    assert judged.capped


def test_a_hard_cap_that_moves_closer_is_obeyed_at_once() -> None:
    suspicion = open_suspicion(clock(), 5.0, None, 10.0)
    _, second = ruling(suspicion, None, 15.0)
    tighter = replace(second, clock=clock(cap=16.0))
    assert ruling(tighter, None, 16.0)[0] is Ruling.DEAD


def test_the_first_window_is_whole_even_past_the_hard_cap() -> None:
    """A lateness that is seen too late (a new configuration) still gets its window."""
    suspicion = open_suspicion(clock(cap=15.0), 5.0, sample(40.0, rank=0.0), 40.0)
    assert ruling(suspicion, sample(44.9, rank=0.0), 44.9)[0] is Ruling.WAIT
    assert ruling(suspicion, sample(45.0, rank=9.0), 45.0)[0] is Ruling.DEAD


def test_our_own_pauses_stretch_the_window() -> None:
    suspicion = open_suspicion(clock(), 5.0, sample(10.0, rank=0.0), 10.0)
    assert ruling(suspicion, sample(20.0, rank=0.0), 20.0, lost=6.0)[0] is Ruling.WAIT
    assert ruling(suspicion, sample(21.0, rank=0.0), 21.0, lost=6.0)[0] is Ruling.DEAD


TOTALS = st.dictionaries(
    st.sampled_from([RANK, CHILD, OTHER]), st.floats(0.0, 1e6, allow_nan=False), max_size=3
)


@given(
    before=TOTALS,
    after=TOTALS,
    span=st.floats(0.0, 100.0),
    lost=st.floats(0.0, 200.0),
    state=st.sampled_from([None, "R", "S", "D", "T", "t", "Z"]),
)
def test_whatever_the_samples_say_the_measurement_makes_sense(
    before: dict[ProcessId, float],
    after: dict[ProcessId, float],
    span: float,
    lost: float,
    state: str | None,
) -> None:
    found = measure(CpuSample(1.0, before), CpuSample(1.0 + span, after, state), BUSY, lost=lost)
    assert found.percent is None or found.percent >= 0.0
    if state in {"T", "Z"}:
        assert found.activity is Activity.NOT_WORKING
    elif found.activity is Activity.WORKING:
        assert found.percent is not None
        assert found.percent > BUSY
