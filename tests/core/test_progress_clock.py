"""A counter that stands while work is there: a deadline like a step's, with words of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest
from stepwarden.core import turn
from stepwarden.core.awareness import Awareness
from stepwarden.core.clocks import Cause
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import CpuSample, ProcessId, WorkerEvidence
from stepwarden.core.lifecycle import State
from stepwarden.core.policy import AGENT_NONE, WorkerPolicy
from stepwarden.core.progress_seen import ProgressSeen, progressed
from stepwarden.core.worker import WorkerState

POLICY = WorkerPolicy("w", agent=AGENT_NONE, window=10.0, progress_budget=60.0)
MAIN = ProcessId(7, 7)
NOW = 1000.0
READY = WorkerState("w", State.HEALTHY, ready_at=NOW, spawned_at=NOW, incarnation=1)


def seen(progress: ProgressSeen | None, cpu: CpuSample | None = None) -> WorkerEvidence:
    return WorkerEvidence({}, MAIN, tree=cpu, progress=progress)


def causes(progress: ProgressSeen | None, policy: WorkerPolicy = POLICY) -> set[Cause]:
    clocks = turn.clocks_of(READY, policy, seen(progress), Awareness(), NOW + 500.0)
    return {clock.cause for clock in clocks}


STANDS = ProgressSeen(5.0, 2.0, moved_at=NOW, work_since=NOW)


def test_it_runs_only_where_a_counter_stands_beside_present_work() -> None:
    assert causes(STANDS) == {Cause.PROGRESS}
    assert not causes(None)
    assert not causes(replace(STANDS, work=0.0, work_since=None)), "idle is never a hang"
    assert not causes(replace(STANDS, counter=None)), "never readable: unknown, not zero"
    assert not causes(STANDS, replace(POLICY, progress_budget=None))


def test_it_does_not_run_before_the_worker_is_ready() -> None:
    starting = replace(READY, lifecycle=State.STARTING, ready_at=None)
    probed = replace(POLICY, probed=True)
    clocks = turn.clocks_of(starting, probed, seen(STANDS), Awareness(), NOW + 1.0)
    assert {clock.cause for clock in clocks} == {Cause.STARTUP}


@pytest.mark.parametrize(
    ("moved", "since", "began"), [(NOW, NOW + 9.0, NOW + 9.0), (NOW + 5.0, NOW, NOW + 5.0)]
)
def test_it_begins_with_the_work_or_the_last_move(moved: float, since: float, began: float) -> None:
    progress = replace(STANDS, moved_at=moved, work_since=since)
    (clock,) = turn.clocks_of(READY, POLICY, seen(progress), Awareness(), NOW + 10.0)
    assert (clock.began, clock.deadline.at) == (began, began + 60.0)
    assert clock.hard_cap == POLICY.step_cap(60.0)


def play(percent: float, moves_at: float, until: float) -> tuple[WorkerState, list[Event]]:
    """Scraped every 5 s; work is there from the start, and the counter moves once."""
    state, progress, events, now = READY, None, list[Event](), NOW
    awareness = Awareness()
    while now < NOW + until:
        if (now - NOW) % 5.0 == 0.0:
            progress = progressed(progress, float(now >= NOW + moves_at), 3.0, now)
        cpu = CpuSample(now, {MAIN: (now - NOW) * percent / 100.0}, "S")
        outcome = turn.advance(state, POLICY, seen(progress, cpu), awareness, now)
        state = outcome.state
        events += outcome.events
        if outcome.actions:
            break
        now += 1.0
    return state, events


def test_a_worker_that_stands_and_does_nothing_is_dead_after_its_window() -> None:
    state, events = play(0.0, 1e9, 200.0)
    assert state.lifecycle is State.DEAD
    assert (events[0].to_state, events[0].cause) == ("UNHEALTHY", "progress")
    assert state.since == NOW + 70.0
    assert "step" not in events[0].sentence.replace("one long step", ""), "it cannot know of steps"


def test_a_busy_one_has_windows_up_to_its_hard_cap() -> None:
    state, events = play(90.0, 1e9, 1000.0)
    assert state.lifecycle is State.DEAD
    assert state.since == NOW + POLICY.step_cap(60.0)
    assert [event.kind for event in events].count(Kind.RETRY) > 3


def test_a_counter_that_moves_again_was_a_false_alarm() -> None:
    state, events = play(90.0, 65.0, 100.0)
    assert state.lifecycle is State.HEALTHY
    assert [event.kind for event in events] == [
        Kind.TRANSITION,
        Kind.FALSE_ALARM,
        Kind.TRANSITION,
    ]
    assert state.false_alarms == 1


def test_a_failed_scrape_neither_moves_nor_forgets() -> None:
    progress = progressed(STANDS, None, None, NOW + 50.0)
    assert progress == STANDS
    (clock,) = turn.clocks_of(READY, POLICY, seen(progress), Awareness(), NOW + 50.0)
    assert clock.began == NOW
