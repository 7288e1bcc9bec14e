"""Lives that have not begun: others come first, a gate stays shut, a platform is awaited (D5)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from stepwarden.core import turn
from stepwarden.core.action import EndTree, Spawn
from stepwarden.core.awareness import Awareness
from stepwarden.core.burying import buried
from stepwarden.core.commands import command
from stepwarden.core.event import Kind
from stepwarden.core.evidence import Exit, ProcessId, RankEvidence, WorkerEvidence
from stepwarden.core.lifecycle import State
from stepwarden.core.policy import RestartPolicy, WorkerPolicy
from stepwarden.core.resume import resume
from stepwarden.core.worker import Outcome, WorkerState

NOW = 1000.0
POLICY = WorkerPolicy("w", startup=10.0, window=5.0)
ATTACHED = replace(POLICY, attached=True, expect_external=60.0)
ATTACHED_NEVER = replace(ATTACHED, restart=RestartPolicy(on="never", limit=2))
AWAITED = WorkerEvidence(held="waits for its agent")
MAIN = ProcessId(7, 7)


def began(policy: WorkerPolicy = POLICY) -> WorkerState:
    return resume(policy, NOW).state


def look(
    state: WorkerState,
    evidence: WorkerEvidence,
    now: float,
    policy: WorkerPolicy = POLICY,
    awareness: Awareness | None = None,
) -> Outcome:
    return turn.advance(state, policy, evidence, awareness or Awareness(), now)


def arrived(now: float) -> WorkerEvidence:
    return WorkerEvidence({"0": RankEvidence(now, beat_at=now, phase="idle")}, MAIN, spawned_at=now)


# Held


def test_what_it_waits_for_is_told_once_and_never_late() -> None:
    state, told = began(), []
    for second in range(2_000):
        held = "waits for a" if second < 1_000 else "waits for b"
        outcome = look(state, WorkerEvidence(held=held), NOW + second)
        state = outcome.state
        told += outcome.events
        assert not turn.clocks_of(state, POLICY, WorkerEvidence(held=held), Awareness(), NOW + 1)
        if second == 60:
            assert (state.lifecycle, state.sentence) == (State.STARTING, "waits for a")
    assert state.lifecycle is State.STARTING
    assert [(e.kind, e.sentence) for e in told] == [
        (Kind.HELD, "waits for a"),
        (Kind.HELD, "waits for b"),
    ]


def test_its_clocks_begin_where_it_was_started() -> None:
    state = look(began(), WorkerEvidence(held="waits"), NOW + 500.0).state
    started = WorkerEvidence({}, MAIN, spawned_at=NOW + 600.0)
    state = look(state, started, NOW + 600.5).state
    assert (state.spawned_at, state.held) == (NOW + 600.0, "")
    assert "waits" not in state.sentence
    assert look(state, started, NOW + 609.0).state.lifecycle is State.STARTING
    assert look(state, started, NOW + 611.0).state.lifecycle is State.UNHEALTHY


def test_a_failed_start_of_one_that_was_held_counts_as_a_death() -> None:
    state = look(began(), WorkerEvidence(held="pre_start"), NOW + 1).state
    outcome = look(state, WorkerEvidence(held="pre_start", spawn_error="exit code 1"), NOW + 2)
    assert outcome.state.lifecycle is State.DEAD
    assert outcome.state.deaths == 1


@pytest.mark.parametrize("policy", [POLICY, ATTACHED])
def test_a_stop_while_it_waits_holds(policy: WorkerPolicy) -> None:
    state = look(began(policy), AWAITED, NOW + 1, policy).state
    outcome = command(state, "stop", NOW + 2)
    assert outcome.state.lifecycle is State.STOPPING
    assert outcome.actions == [EndTree(1)]
    assert look(outcome.state, AWAITED, NOW + 3, policy).state == outcome.state
    ended = buried(outcome.state, policy, frozenset(), NOW + 4, 0.0)
    assert ended.state.lifecycle is State.STOPPED
    assert look(ended.state, arrived(NOW + 5), NOW + 5, policy).state.lifecycle is State.STOPPED
    assert command(ended.state, "start", NOW + 6).actions == [Spawn(2)]


# The gate


def test_a_gate_that_stays_shut_is_failed_with_its_reason_and_no_death() -> None:
    state = look(began(), WorkerEvidence(held="port 8000 is taken"), NOW + 1).state
    outcome = look(state, WorkerEvidence(shut="port 8000 is taken by pid 9"), NOW + 120)
    assert outcome.state.lifecycle is State.FAILED
    assert outcome.state.sentence == "port 8000 is taken by pid 9"
    assert outcome.state.cause == "gate"
    assert outcome.state.deaths == 0
    assert not outcome.actions, "nothing of it runs"
    again = command(outcome.state, "start", NOW + 130)
    assert again.actions == [Spawn(2)]
    assert again.state.held == ""


# The platform


def test_d5_not_back_in_time_is_failed_and_coming_late_is_welcome() -> None:
    state = look(began(ATTACHED), AWAITED, NOW + 59.0, ATTACHED).state
    assert state.lifecycle is State.STARTING
    state = look(state, AWAITED, NOW + 60.0, ATTACHED).state
    assert (state.lifecycle, state.cause) == (State.FAILED, "platform")
    assert state.deaths == 0
    assert look(state, AWAITED, NOW + 5000.0, ATTACHED).state == state
    outcome = look(state, arrived(NOW + 6000.0), NOW + 6000.0, ATTACHED)
    assert outcome.state.lifecycle is State.STARTING
    assert (outcome.state.spawned_at, outcome.state.held) == (NOW + 6000.0, "")
    outcome = look(outcome.state, arrived(NOW + 6000.0), NOW + 6000.1, ATTACHED)
    assert outcome.state.lifecycle is State.HEALTHY


def test_time_in_which_we_stood_still_is_not_the_platforms() -> None:
    awareness = Awareness().woke(NOW + 10.0, NOW + 50.0)
    state = look(began(ATTACHED), AWAITED, NOW + 60.0, ATTACHED, awareness).state
    assert state.lifecycle is State.STARTING
    state = look(state, AWAITED, NOW + 100.0, ATTACHED, awareness).state
    assert state.lifecycle is State.FAILED


@pytest.mark.parametrize("cause", ["exit", "gate", "unkillable"])
def test_no_other_failure_is_undone_by_an_agent(cause: str) -> None:
    failed = WorkerState("w", State.FAILED, cause=cause, incarnation=1)
    assert look(failed, arrived(NOW), NOW, ATTACHED).state == failed


def test_one_of_a_foreign_pid_namespace_is_there_by_its_beats() -> None:
    """No process of ours can be named, and its agent is all there is."""
    there = replace(arrived(NOW + 5.0), main=None)
    state = look(began(ATTACHED), AWAITED, NOW + 1.0, ATTACHED).state
    assert look(state, there, NOW + 5.0, ATTACHED).state.lifecycle is State.HEALTHY
    late = replace(arrived(NOW + 99.0), main=None)
    failed = look(state, AWAITED, NOW + 90.0, ATTACHED).state
    assert failed.lifecycle is State.FAILED
    assert look(failed, late, NOW + 99.0, ATTACHED).state.lifecycle is State.STARTING
    assert look(began(), there, NOW + 5.0).state.lifecycle is State.STARTING, "not of ours"


def dies_once(state: WorkerState, policy: WorkerPolicy, now: float) -> WorkerState:
    state = look(state, arrived(now), now, policy).state
    assert state.lifecycle is State.HEALTHY
    dead = look(state, replace(arrived(now), exit=Exit(code=1)), now + 1.0, policy)
    assert dead.state.lifecycle is State.DEAD
    state = buried(dead.state, policy, frozenset(), now + 2.0, 0.0).state
    if state.lifecycle is State.RESTARTING:
        outcome = look(state, WorkerEvidence(), now + 2.0, policy)
        assert outcome.actions == [Spawn(state.incarnation + 1)], "awaited at once, no delay"
        state = look(outcome.state, AWAITED, now + 3.0, policy).state
    return state


def test_d5_with_restart_never_the_platform_counts_how_often() -> None:
    state = began(ATTACHED_NEVER)
    for number in range(20):
        state = dies_once(state, ATTACHED_NEVER, NOW + 10.0 * number)
        assert state.lifecycle is State.STARTING
    assert state.deaths == 20


def test_d5_otherwise_the_limit_counts() -> None:
    policy = replace(ATTACHED, restart=RestartPolicy(limit=3))
    state = began(policy)
    for number in range(3):
        state = dies_once(state, policy, NOW + 10.0 * number)
    assert state.lifecycle is State.FAILED
    assert "restart.limit 3" in state.sentence


@pytest.mark.parametrize("policy", [ATTACHED, ATTACHED_NEVER])
def test_what_could_not_be_killed_of_it_is_gone_and_the_platform_is_awaited(
    policy: WorkerPolicy,
) -> None:
    dead = WorkerState("w", State.DEAD, incarnation=3, cause="step")
    stuck = buried(dead, policy, frozenset({MAIN}), NOW, 0.0).state
    assert stuck.lifecycle is State.FAILED
    freed = buried(stuck, policy, frozenset(), NOW + 9.0, 0.0).state
    assert (freed.lifecycle, freed.restart_at.at) == (State.RESTARTING, NOW + 9.0)
