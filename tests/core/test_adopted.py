"""Adopted lives, O-STATE-2: unknown until seen, then judged from now on with fresh windows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from stepwarden.core import turn
from stepwarden.core.action import EndTree
from stepwarden.core.awareness import Awareness
from stepwarden.core.budget import Rows
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import (
    Exit,
    Lease,
    ProcessId,
    RankEvidence,
    Step,
    Work,
    WorkerEvidence,
)
from stepwarden.core.lifecycle import State
from stepwarden.core.memory import Kept
from stepwarden.core.policy import AGENT_NONE, AGENT_OPTIONAL, WorkerPolicy
from stepwarden.core.restarts import Ledger
from stepwarden.core.resume import Found, resume
from stepwarden.core.worker import WorkerState

NOW = 5000.0
POLICY = WorkerPolicy(
    "w",
    step=Rows(((8, 2.0),), maximum=10.0),
    first_step=0.0,
    heartbeat_timeout=3.0,
    startup=60.0,
    window=4.0,
)
NO_AGENT = replace(POLICY, agent=AGENT_NONE)
OPTIONAL = replace(POLICY, agent=AGENT_OPTIONAL)
ATTACHED = replace(POLICY, attached=True, expect_external=20.0)
MAIN = ProcessId(100, 7)
Sight = Callable[[float], WorkerEvidence]


def probed(policy: WorkerPolicy) -> WorkerPolicy:
    return replace(policy, probed=True)


def adopted(policy: WorkerPolicy = POLICY, **facts: Any) -> WorkerState:
    usual: dict[str, Any] = {"incarnation": 4, "ready_at": 100.0, "ledger": Ledger((4900.0,), 1)}
    kept = Kept(State.HEALTHY, **usual | facts)
    return resume(policy, NOW, kept, Found.LIFE, incarnation=4).state


def rank(**facts: Any) -> RankEvidence:
    usual: dict[str, Any] = {"attached_at": NOW, "phase": "idle"}
    return RankEvidence(**usual | facts)


def seen(**ranks: RankEvidence) -> Sight:
    return lambda _: WorkerEvidence(ranks, MAIN)


def beating(**facts: Any) -> Sight:
    return lambda now: WorkerEvidence({"0": rank(beat_at=now, **facts)}, MAIN)


def after(
    state: WorkerState, sight: Sight, seconds: float, policy: WorkerPolicy = POLICY
) -> tuple[WorkerState, list[Event]]:
    """The loop turns as it asks for; an EndTree is the end of it."""
    now, end, awareness = state.since, state.since + seconds, Awareness()
    events: list[Event] = []
    while now <= end:
        evidence = sight(now)
        outcome = turn.advance(state, policy, evidence, awareness, now)
        state = outcome.state
        events += outcome.events
        if outcome.actions:
            assert outcome.actions == [EndTree(4)]
            break
        clocks = turn.clocks_of(state, policy, evidence, awareness, now)
        wake = turn.next_wake(state, policy, clocks, awareness, now).at
        assert wake is not None
        now = max(wake, now + 0.01)
    return state, events


@pytest.mark.parametrize("policy", [POLICY, probed(POLICY), probed(NO_AGENT), probed(OPTIONAL)])
def test_with_nothing_to_see_it_stays_and_says_so_once(policy: WorkerPolicy) -> None:
    """A rank whose page lies still tells nothing, nor does a process that runs."""
    sights = (seen(), seen(a=rank(page_readable=True, moved_at=NOW, steps_begun=9)))
    for sight in sights if policy is POLICY else sights[:1]:
        state, events = after(adopted(policy), sight, 10_000.0, policy)
        assert state.lifecycle is State.ADOPTED
        assert [event.kind for event in events] == [Kind.ADOPTED_UNSEEN]
        about_its_agent = "agent" in events[0].sentence
        assert about_its_agent == (policy.agent == "required")


@pytest.mark.parametrize("policy", [probed(NO_AGENT), probed(OPTIONAL)])
def test_a_start_that_hangs_does_not_hide_in_an_adoption(policy: WorkerPolicy) -> None:
    """Adopted before it was ever ready, it has its startup budget anew, and no more."""
    state, events = after(adopted(policy, ready_at=None), seen(), 0.0, policy)
    assert (state.lifecycle, state.spawned_at) == (State.STARTING, NOW)
    assert not [event for event in events if event.kind is Kind.ADOPTED_UNSEEN]
    later, events = after(adopted(policy, ready_at=None), seen(), policy.startup + 0.1, policy)
    assert (later.lifecycle, later.cause) == (State.UNHEALTHY, "startup")


def test_no_clock_runs_for_it() -> None:
    hung = WorkerEvidence({"0": rank(steps=(Step(7, NOW - 1e6, 8),), beat_at=NOW)}, MAIN)
    assert not turn.clocks_of(adopted(), POLICY, hung, Awareness(), NOW + 1e6)


@pytest.mark.parametrize(
    "shown",
    [
        rank(beat_at=NOW),
        rank(moved_at=NOW + 1.0, page_readable=True),
        rank(steps=(Step(7, NOW - 1.0, 8),), page_readable=True, moved_at=NOW),
    ],
)
def test_a_beat_a_moving_page_or_an_open_step_shows_it(shown: RankEvidence) -> None:
    state, events = after(adopted(), seen(a=shown), 0.0)
    assert state.lifecycle is State.HEALTHY
    assert state.ready_at == 100.0, "its uptime goes on"
    assert state.ledger == Ledger((4900.0,), 1)
    assert "adopted, seen again" in events[0].sentence


def test_one_that_was_loading_has_its_whole_start_before_it() -> None:
    loading = beating(phase="loading")
    state, _ = after(adopted(ready_at=None), loading, 0.0)
    assert state.lifecycle is State.STARTING
    state, events = after(state, loading, 59.0)
    assert state.lifecycle is State.STARTING
    assert not events
    state, _ = after(state, loading, 61.0)
    assert state.lifecycle is State.UNHEALTHY


def test_one_that_came_up_while_nobody_looked_is_ready() -> None:
    state, _ = after(adopted(ready_at=None), beating(), 0.0)
    assert state.lifecycle is State.HEALTHY
    assert state.ready_at == NOW


@pytest.mark.parametrize(
    ("policy", "evidence"),
    [
        (NO_AGENT, WorkerEvidence({}, MAIN)),
        (OPTIONAL, WorkerEvidence({}, MAIN)),
        (probed(NO_AGENT), WorkerEvidence({}, MAIN, probe_ok=True)),
        (probed(OPTIONAL), WorkerEvidence({}, MAIN, probe_ok=True)),
    ],
)
def test_without_an_agent_its_process_or_its_probe_shows_it(
    policy: WorkerPolicy, evidence: WorkerEvidence
) -> None:
    for ready_at in (None, 100.0):
        state, _ = after(adopted(policy, ready_at=ready_at), lambda _: evidence, 0.0, policy)
        assert state.lifecycle is State.HEALTHY


def test_an_agent_shows_one_whose_probe_has_never_passed() -> None:
    state, _ = after(adopted(ready_at=None), beating(), 0.0, probed(POLICY))
    assert state.lifecycle is State.STARTING


@pytest.mark.parametrize(
    "evidence",
    [
        WorkerEvidence({}, MAIN, exit=Exit(code=1)),
        WorkerEvidence({}, MAIN, exit=Exit()),
        WorkerEvidence({"0": rank(lost=True)}, MAIN),
    ],
)
def test_its_own_end_kills_it_at_once(evidence: WorkerEvidence) -> None:
    state, _ = after(adopted(), lambda _: evidence, 0.0)
    assert state.lifecycle is State.DEAD


OLD = NOW - 4000.0
HANGS = [
    ("step", rank(page_readable=True, moved_at=NOW, steps=(Step(7, OLD, 8),))),
    ("heartbeat", rank(beat_at=NOW)),
    ("drain", rank(page_readable=True, beat_at=NOW, phase="draining", phase_since=OLD)),
    ("lease", rank(page_readable=True, beat_at=NOW, leases=(Lease("swap", OLD, 5.0),))),
    ("scheduler", rank(page_readable=True, beat_at=NOW, work=Work(3, OLD, 1, OLD))),
]


@pytest.mark.parametrize(("cause", "shown"), HANGS)
def test_what_hung_all_the_time_has_a_whole_window_from_now(
    cause: str, shown: RankEvidence
) -> None:
    """Its deadline and its hard cap passed while nobody looked; that alone kills nobody."""
    state, events = after(adopted(), seen(a=shown), 60.0)
    assert state.lifecycle is State.DEAD
    moves = [event for event in events if event.kind is Kind.TRANSITION]
    assert [event.to_state for event in moves] == ["HEALTHY", "UNHEALTHY", "DEAD"]
    assert moves[-1].cause == cause
    assert state.since >= NOW + POLICY.window


def test_what_ends_in_that_window_is_a_false_alarm() -> None:
    def sight(now: float) -> WorkerEvidence:
        steps = (Step(7, OLD, 8),) if now < NOW + 3.0 else ()
        page = rank(page_readable=True, beat_at=now, moved_at=now, steps=steps, steps_begun=7)
        return WorkerEvidence({"0": page}, MAIN)

    state, events = after(adopted(), sight, 60.0)
    assert state.lifecycle is State.HEALTHY
    assert [event.kind for event in events].count(Kind.FALSE_ALARM) == 1


def test_silence_while_nobody_looked_is_no_silence() -> None:
    """Ten heartbeat timeouts of downtime; the agent needs two more seconds to come back."""
    sight = seen()
    state, _ = after(adopted(), sight, 2.0)
    assert state.lifecycle is State.ADOPTED
    state, events = after(state, beating(), 100.0)
    assert state.lifecycle is State.HEALTHY
    assert len(events) == 1


# What something else starts


def awaited(_: float) -> WorkerEvidence:
    return WorkerEvidence(held="waits for its agent")


def test_one_that_was_awaited_is_awaited_anew_and_has_its_limit() -> None:
    state, _ = after(adopted(ATTACHED, ready_at=None), awaited, 0.0, ATTACHED)
    assert state.lifecycle is State.STARTING
    state, _ = after(state, awaited, 19.0, ATTACHED)
    assert (state.lifecycle, state.held) == (State.STARTING, "waits for its agent")
    state, events = after(replace(state, since=NOW), awaited, 21.0, ATTACHED)
    assert state.lifecycle is State.FAILED
    assert events[-1].cause == "platform"


def test_one_of_a_foreign_pid_namespace_is_seen_by_its_beats_alone() -> None:
    def sight(now: float) -> WorkerEvidence:
        return WorkerEvidence({"0": rank(beat_at=now)})

    state, _ = after(adopted(ATTACHED), sight, 100.0, ATTACHED)
    assert state.lifecycle is State.HEALTHY
