"""Time that a worker could not use shifts deadline and window, by one budget at most, no cap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.core.awareness import Awareness
from stepwarden.core.budget import Formula
from stepwarden.core.clocks import Cause, RunningClock, Scene, running_clocks
from stepwarden.core.deadline import Deadline
from stepwarden.core.evidence import CpuSample, ProcessId, RankEvidence, Step, WorkerEvidence
from stepwarden.core.facts import NO_PRESSURE, Pressure, Stall, Throttling
from stepwarden.core.losses import lost_between
from stepwarden.core.policy import HardCaps, WorkerPolicy
from stepwarden.core.starved import MOST_MARKS, NOT_STARVED, Starved
from stepwarden.core.verdict import Ruling, judge, open_suspicion

POLICY = WorkerPolicy(
    "w", step=Formula(10.0, 0.0), first_step=0.0, window=5.0, hard_caps=HardCaps(step=60.0)
)
P = ProcessId(1, 1)


def throttled(share: float, until: int = 200) -> Starved:
    """So large a share of each second is lost."""
    starved = NOT_STARVED
    for second in range(until):
        starved = starved.noted(float(second), second + 1.0, share)
    return starved


def step_clock(starved: Starved, now: float) -> RunningClock:
    rank = RankEvidence(
        0.0, steps=(Step(2, 0.0, 8),), page_readable=True, beat_at=now, phase="decode"
    )
    evidence = WorkerEvidence({"0": rank}, starved=starved)
    scene = Scene(POLICY, evidence, 0.0, True, frozenset({"0"}), Awareness(), now)
    return next(clock for clock in running_clocks(scene) if clock.cause is Cause.STEP)


def test_lost_time_is_asked_for_since_any_instant() -> None:
    starved = NOT_STARVED.noted(0.0, 1.0, 0.5).noted(1.0, 2.0, 1.0)
    assert starved.lost(0.0, 2.0) == 1.5
    assert starved.lost(0.5, 1.5) == 0.75
    assert starved.lost(2.0, 9.0) == 0.0
    assert starved.lost(-5.0, 0.0) == 0.0


def test_nothing_is_lost_while_nobody_looked() -> None:
    starved = NOT_STARVED.noted(0.0, 1.0, 1.0).noted(10.0, 11.0, 1.0)
    assert starved.lost(1.0, 10.0) == 0.0
    assert starved.lost(0.0, 11.0) == 2.0


def test_no_more_is_lost_than_there_was() -> None:
    assert NOT_STARVED.noted(0.0, 1.0, 7.0).lost(0.0, 1.0) == 1.0
    assert NOT_STARVED.noted(0.0, 1.0, 0.0) is NOT_STARVED


@given(
    losses=st.lists(st.floats(0.0, 2.0), max_size=700),
    since=st.floats(0.0, 700.0),
    now=st.floats(0.0, 700.0),
)
def test_marks_stay_few_and_say_no_more_than_has_passed(
    losses: list[float], since: float, now: float
) -> None:
    starved = NOT_STARVED
    for second, lost in enumerate(losses):
        starved = starved.noted(float(second), second + 1.0, lost)
    assert len(starved.marks) <= MOST_MARKS
    assert 0.0 <= starved.lost(since, now) <= max(0.0, now - since) + 1e-6
    total = sum(min(1.0, lost) for lost in losses)
    assert starved.lost(0.0, 1e9) == pytest.approx(total)


@pytest.mark.parametrize(("share", "shift"), [(0.0, 0.0), (0.5, 5.0), (1.0, 10.0)])
def test_a_deadline_moves_by_the_time_lost(share: float, shift: float) -> None:
    clock = step_clock(throttled(share), 10.0)
    assert clock.deadline == Deadline(10.0 + shift)
    assert clock.starved == shift
    assert clock.cap_at == 60.0


@pytest.mark.parametrize("now", [20.0, 50.0, 150.0])
def test_by_one_budget_at_most_and_the_hard_cap_stays(now: float) -> None:
    clock = step_clock(throttled(0.9), now)
    assert clock.deadline.at == pytest.approx(10.0 + min(10.0, 0.9 * now))
    assert clock.cap_at == 60.0


def test_deadline_and_window_together_get_one_budget() -> None:
    starved = throttled(0.5)
    first = step_clock(starved, 20.0)
    assert first.deadline == Deadline(20.0)
    suspicion = open_suspicion(first, POLICY.window, None, 20.0)
    assert suspicion.due(0.0) == Deadline(25.0)
    later = open_suspicion(first, POLICY.window, None, 20.0)
    later = type(later)(step_clock(starved, 24.0), 20.0, 25.0, None, 25.0, starved_before=10.0)
    assert later.due(0.0) == Deadline(25.0)  # the budget of it is used up already


def test_what_is_lost_in_the_window_makes_the_window_longer() -> None:
    starved = NOT_STARVED.noted(9.0, 10.0, 0.0)
    for second in range(10, 20):
        starved = starved.noted(float(second), second + 1.0, 0.5)
    first = RunningClock("0", Cause.STEP, 0.0, 10.0, Deadline(10.0), 60.0, 60.0, "")
    suspicion = open_suspicion(first, POLICY.window, None, 10.0)
    clock = step_clock(starved, 15.0)
    grown = type(suspicion)(clock, 10.0, 15.0, None, 15.0, starved_before=0.0)
    assert grown.due(0.0) == Deadline(17.5)


def test_a_rank_that_spins_under_a_small_quota_is_unknown_and_dies_at_the_hard_cap() -> None:
    """It uses 2 % of a core because it gets no more; its limit is 5 %."""
    clock = step_clock(throttled(0.98), 40.0)
    opened = open_suspicion(clock, 5.0, CpuSample(40.0, {P: 1.0}, "R"), 40.0)
    after = CpuSample(46.0, {P: 1.12}, "R")
    ruled = judge(opened, after, 46.0, window=5.0, busy_cpu=5.0, starved=5.9)
    assert ruled.ruling is Ruling.UNHEALTHY_RETRY
    assert judge(opened, after, 46.0, window=5.0, busy_cpu=5.0).ruling is Ruling.DEAD
    capped = judge(
        opened, CpuSample(60.0, {P: 1.4}, "R"), 60.0, window=5.0, busy_cpu=5.0, starved=19.0
    )
    assert (capped.ruling, capped.capped) == (Ruling.DEAD, True)


def test_a_rank_that_sleeps_under_a_quota_is_not_working_all_the_same() -> None:
    clock = step_clock(throttled(0.98), 40.0)
    opened = open_suspicion(clock, 5.0, CpuSample(40.0, {P: 1.0}, "S"), 40.0)
    after = CpuSample(46.0, {P: 1.0}, "S")
    ruled = judge(opened, after, 46.0, window=5.0, busy_cpu=5.0, starved=5.9)
    assert ruled.ruling is Ruling.DEAD


def quota(seconds: float, throttled: int) -> Pressure:
    return Pressure(quotas={"g": Throttling(throttled, throttled, seconds)})


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        (NO_PRESSURE, NO_PRESSURE, 0.0),
        (quota(1.0, 10), quota(1.8, 20), 0.8),
        (quota(1.0, 10), quota(9.0, 20), 1.0),  # summed over eight CPUs
        (Pressure(cpu=Stall(0.0, 0.0)), Pressure(cpu=Stall(1.0, 0.3)), 0.3),
        (Pressure(cpu=Stall(0.0)), Pressure(cpu=Stall(1.0)), 0.0),  # some waited, not all
        (Pressure(memory=Stall(0.0, 1.0)), Pressure(memory=Stall(1.0, 1.6)), 0.6),
        (
            Pressure(cpu=Stall(0.0, 0.0), io=Stall(0.0, 0.0)),
            Pressure(cpu=Stall(1.0, 0.5), io=Stall(1.0, 0.7)),
            0.7,
        ),
    ],
)
def test_what_counts_as_lost(before: Pressure, after: Pressure, lost: float) -> None:
    idle = (NO_PRESSURE, NO_PRESSURE)
    assert lost_between(before, after, idle) == pytest.approx(lost)


def test_of_the_host_memory_and_disks_count_and_cpu_does_not() -> None:
    host = (
        Pressure(Stall(0.0, 0.0), Stall(0.0, 0.0), Stall(0.0, 0.0)),
        Pressure(Stall(9.0, 9.0), Stall(1.0, 0.2), Stall(1.0, 0.4)),
    )
    assert lost_between(NO_PRESSURE, NO_PRESSURE, host) == pytest.approx(0.4)
