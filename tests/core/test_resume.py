"""Where a worker begins when a daemon starts: O-STATE-2, O-RSTR-2, and what the notes may say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from stepwarden.core.action import EndTree, Spawn
from stepwarden.core.burying import buried
from stepwarden.core.commands import command, end_with_daemon, give_up, regroup
from stepwarden.core.deadline import Deadline
from stepwarden.core.event import Kind
from stepwarden.core.evidence import ProcessId
from stepwarden.core.lifecycle import LIVE, State
from stepwarden.core.memory import Kept, keep, recall
from stepwarden.core.policy import RestartPolicy, WorkerPolicy
from stepwarden.core.restarts import Ledger
from stepwarden.core.resume import LEFT_BEHIND, Found, resume
from stepwarden.core.worker import Outcome, WorkerState

POLICY = WorkerPolicy(
    "w", restart=RestartPolicy(delay=10.0, jitter=0.0, limit=3, within=1800.0, stable=600.0)
)
NEVER = replace(POLICY, restart=replace(POLICY.restart, on="never"))
ATTACHED = replace(POLICY, attached=True)
ATTACHED_NEVER = replace(NEVER, attached=True)
AUTO_OFF = replace(POLICY, autostart=False)
NOW = 5000.0
DEATHS = Ledger((4000.0, 4900.0), 2)


def kept(lifecycle: State = State.HEALTHY, **facts: Any) -> Kept:
    usual: dict[str, Any] = {"incarnation": 4, "wish": "up", "deaths": 2, "ledger": DEATHS}
    return Kept(lifecycle, **usual | facts)


def gone(outcome: Outcome, policy: WorkerPolicy = POLICY, now: float = NOW + 1.0) -> Outcome:
    """Its tree has been ended."""
    assert outcome.actions == [EndTree(outcome.state.incarnation)]
    return buried(outcome.state, policy, frozenset(), now, 0.0)


def noted(state: WorkerState) -> Kept:
    told = recall(keep(state))
    assert told is not None
    return told


# Without a note


def test_nothing_is_known_and_it_starts() -> None:
    outcome = resume(POLICY, NOW)
    assert outcome.state.lifecycle is State.STARTING
    assert outcome.actions == [Spawn(1)]


def test_without_autostart_it_waits_for_the_operator() -> None:
    outcome = resume(AUTO_OFF, NOW)
    assert outcome.state.lifecycle is State.STOPPED
    assert not outcome.actions


def test_the_number_of_a_life_is_never_used_twice() -> None:
    assert resume(POLICY, NOW, incarnation=7).actions == [Spawn(8)]
    assert resume(POLICY, NOW, kept(incarnation=9), incarnation=7).actions == [Spawn(10)]
    assert resume(POLICY, NOW, kept(incarnation=2), incarnation=7).actions == [Spawn(8)]


@pytest.mark.parametrize("policy", [POLICY, AUTO_OFF])
def test_a_life_goes_on_though_its_notes_are_lost(policy: WorkerPolicy) -> None:
    """Somebody wanted it, or it would not run; a damaged file is no reason to end it."""
    outcome = resume(policy, NOW, None, Found.LIFE, incarnation=3)
    assert outcome.state.lifecycle is State.ADOPTED
    assert outcome.state.incarnation == 3
    assert not outcome.actions


def test_a_rest_without_notes_is_ended_first() -> None:
    outcome = resume(POLICY, NOW, None, Found.REST, incarnation=3)
    assert outcome.state.lifecycle is State.STOPPING
    assert outcome.state.sentence == LEFT_BEHIND
    assert gone(outcome).actions == [Spawn(4)]
    outcome = resume(AUTO_OFF, NOW, None, Found.REST, incarnation=3)
    assert gone(outcome, AUTO_OFF).state.lifecycle is State.STOPPED


# Adoption


@pytest.mark.parametrize("lifecycle", sorted(LIVE))
@pytest.mark.parametrize("policy", [POLICY, AUTO_OFF, NEVER, ATTACHED])
@pytest.mark.parametrize("wish", ["", "up"])
def test_o_state_2_a_life_is_adopted_with_all_its_counters(
    lifecycle: State, policy: WorkerPolicy, wish: str
) -> None:
    told = kept(lifecycle, wish=wish, ready_at=100.0, false_alarms=5, last_death="it hung")
    outcome = resume(policy, NOW, told, Found.LIFE, incarnation=4)
    state = outcome.state
    assert state.lifecycle is State.ADOPTED
    assert not outcome.actions, "no signal, no second copy"
    assert (state.incarnation, state.deaths, state.ledger) == (4, 2, DEATHS)
    assert (state.ready_at, state.false_alarms, state.last_death) == (100.0, 5, "it hung")
    assert (state.spawned_at, state.since) == (NOW, NOW)
    assert not state.suspicions


@pytest.mark.parametrize(
    "told",
    [
        kept(State.RESTARTING, incarnation=3, restart_at=NOW + 9, cause="exit"),
        kept(State.DEAD, incarnation=3, cause="exit", clean_exit=True),
        kept(State.STOPPING, incarnation=3, restart_wanted=True),
        kept(State.FAILED, incarnation=3, cause="exit"),
        kept(State.STOPPED, incarnation=3, wish="down"),
    ],
)
def test_what_is_noted_of_an_older_life_does_not_end_a_younger_one(told: Kept) -> None:
    """The newest note was lost with the daemon; the life itself tells that it was started."""
    outcome = resume(POLICY, NOW, replace(told, ready_at=50.0), Found.LIFE, incarnation=4)
    state = outcome.state
    assert state.lifecycle is State.ADOPTED
    assert not outcome.actions
    assert (state.ledger, state.deaths) == (DEATHS, 2)
    assert (state.ready_at, state.clean_exit, state.cause) == (None, False, "")
    assert state.wish == "up"


# The operator's word


@pytest.mark.parametrize("same_boot", [True, False])
@pytest.mark.parametrize("lifecycle", list(State))
@pytest.mark.parametrize("found", [Found.NOTHING, Found.REST, Found.LIFE])
def test_o_rstr_2_a_stop_outlives_daemon_and_boot(
    lifecycle: State, found: Found, same_boot: bool
) -> None:
    told = kept(lifecycle, wish="down", cause="exit", restart_at=NOW)
    outcome = resume(POLICY, NOW, told, found, same_boot=same_boot, incarnation=4)
    if found is not Found.NOTHING:
        assert outcome.state.lifecycle is State.STOPPING
        outcome = gone(outcome)
    assert outcome.state.lifecycle is State.STOPPED
    assert outcome.state.wish == "down"
    assert not outcome.actions
    again = resume(POLICY, NOW + 99, noted(outcome.state), incarnation=4)
    assert again.state.lifecycle is State.STOPPED
    assert command(again.state, "start", NOW + 100).actions == [Spawn(5)]


@pytest.mark.parametrize("same_boot", [True, False])
def test_a_start_outlives_daemon_and_boot_too(same_boot: bool) -> None:
    told = kept(State.HEALTHY, wish="up")
    assert resume(AUTO_OFF, NOW, told, same_boot=same_boot).actions == [Spawn(5)]


# After a boot


@pytest.mark.parametrize("lifecycle", list(State))
def test_after_a_boot_counters_delays_and_failed_begin_anew(lifecycle: State) -> None:
    told = kept(lifecycle, cause="exit", restart_at=1e9, give_up="group", last_death="it hung")
    outcome = resume(POLICY, NOW, told, same_boot=False)
    state = outcome.state
    assert state.lifecycle is State.STARTING
    assert (state.ledger, state.deaths, state.give_up) == (Ledger(), 0, "")
    assert state.last_death == "it hung"
    assert outcome.actions == [Spawn(5)]


# In the same boot, with nothing left of it


def test_failed_stays_failed() -> None:
    text = "gave up after 3 deaths"
    outcome = resume(POLICY, NOW, kept(State.FAILED, cause="exit", sentence=text))
    assert outcome.state.lifecycle is State.FAILED
    assert outcome.state.sentence == text
    assert not outcome.actions
    assert command(outcome.state, "start", NOW).actions == [Spawn(5)]


def test_one_that_its_platform_did_not_start_is_awaited_anew() -> None:
    """Only while it is awaited can it come back at all."""
    told = kept(State.FAILED, cause="platform")
    assert resume(ATTACHED, NOW, told).actions == [Spawn(5)]
    outcome = resume(ATTACHED, NOW, told, Found.REST)
    assert gone(outcome, ATTACHED).actions == [Spawn(5)]
    outcome = resume(ATTACHED, NOW, told, Found.LIFE, incarnation=4)
    assert outcome.state.lifecycle is State.ADOPTED


@pytest.mark.parametrize(
    ("noted_at", "due"),
    [(NOW + 7.0, NOW + 7.0), (NOW - 900.0, NOW), (None, NOW), (NOW + 1e9, NOW + 300.0)],
)
def test_a_delay_goes_on_and_never_for_ever(noted_at: float | None, due: float) -> None:
    outcome = resume(POLICY, NOW, kept(State.RESTARTING, restart_at=noted_at))
    assert outcome.state.lifecycle is State.RESTARTING
    assert outcome.state.restart_at.at == due
    assert not outcome.actions


def test_a_burial_that_ended_meanwhile_is_followed_by_the_delay() -> None:
    outcome = resume(POLICY, NOW, kept(State.DEAD, cause="step"))
    assert outcome.state.lifecycle is State.RESTARTING
    assert outcome.state.restart_at.at == NOW + 20.0, "two deaths in a row"
    spent = kept(State.DEAD, cause="step", ledger=Ledger((1.0, 2.0, 3.0), 3))
    assert resume(POLICY, NOW, spent).state.lifecycle is State.FAILED
    assert resume(NEVER, NOW, kept(State.DEAD, cause="step")).state.lifecycle is State.STOPPED


def test_a_rest_by_policy_stays_so_until_the_policy_changes() -> None:
    text = "not started again, restart.on is never"
    told = kept(State.STOPPED, cause="exit", sentence=text)
    outcome = resume(NEVER, NOW, told)
    assert outcome.state.lifecycle is State.STOPPED
    assert outcome.state.sentence == text
    assert not outcome.events
    assert resume(NEVER, NOW, noted(outcome.state)).state.lifecycle is State.STOPPED
    assert resume(NEVER, NOW, told, same_boot=False).actions == [Spawn(5)]
    assert resume(POLICY, NOW, told).state.lifecycle is State.RESTARTING


# In the same boot, with something left of it


@pytest.mark.parametrize("found", [Found.REST, Found.LIFE])
def test_a_death_that_was_being_ended_goes_on_with_delay_and_counters(found: Found) -> None:
    outcome = resume(POLICY, NOW, kept(State.DEAD, cause="step"), found, incarnation=4)
    assert outcome.state.lifecycle is State.DEAD
    assert [event.kind for event in outcome.events] == [Kind.BURIAL]
    after = gone(outcome)
    assert after.state.lifecycle is State.RESTARTING
    assert after.state.restart_at.at == NOW + 1.0 + 20.0
    assert (after.state.deaths, after.state.ledger) == (2, DEATHS), "not counted twice"


@pytest.mark.parametrize("found", [Found.REST, Found.LIFE])
def test_a_restart_under_way_is_brought_to_its_end(found: Found) -> None:
    told = kept(State.STOPPING, restart_wanted=True)
    outcome = resume(POLICY, NOW, told, found, incarnation=4)
    assert outcome.state.lifecycle is State.STOPPING
    assert gone(outcome).actions == [Spawn(5)]


@pytest.mark.parametrize("lifecycle", [State.STARTING, State.HEALTHY, State.UNHEALTHY])
def test_a_rest_of_a_live_worker_is_ended_before_it_starts_again(lifecycle: State) -> None:
    outcome = resume(POLICY, NOW, kept(lifecycle), Found.REST)
    assert gone(outcome).actions == [Spawn(5)]


@pytest.mark.parametrize("found", [Found.REST, Found.LIFE])
def test_failed_stays_failed_when_the_rest_is_gone(found: Found) -> None:
    told = kept(State.FAILED, cause="gate", sentence="port 8000 is taken")
    outcome = resume(POLICY, NOW, told, found, incarnation=4)
    after = gone(outcome)
    assert after.state.lifecycle is State.FAILED
    assert "port 8000 is taken" in after.state.sentence


@pytest.mark.parametrize(
    ("policy", "ledger", "then"),
    [
        (POLICY, DEATHS, State.RESTARTING),
        (POLICY, Ledger((1.0, 2.0, 3.0), 3), State.FAILED),
        (NEVER, DEATHS, State.STOPPED),
        (ATTACHED_NEVER, Ledger((1.0, 2.0, 3.0), 3), State.RESTARTING),
    ],
)
@pytest.mark.parametrize("found", [Found.REST, Found.NOTHING])
def test_the_unkillable_is_ended_again_and_the_rules_hold(
    policy: WorkerPolicy, ledger: Ledger, then: State, found: Found
) -> None:
    told = kept(State.FAILED, cause="unkillable", ledger=ledger)
    outcome = resume(policy, NOW, told, found)
    if found is Found.REST:
        assert outcome.state.lifecycle is State.DEAD
        outcome = gone(outcome, policy)
    assert outcome.state.lifecycle is then
    assert not outcome.actions


def test_an_unkillable_rest_is_failed_under_the_next_daemon_too() -> None:
    outcome = resume(POLICY, NOW, kept(State.DEAD, cause="step"), Found.REST)
    left = frozenset({ProcessId(77, 7)})
    stuck = buried(outcome.state, POLICY, left, NOW, 0.0)
    assert stuck.state.lifecycle is State.FAILED
    assert command(stuck.state, "start", NOW).refusal


# A daemon that ends and takes its workers with it


def living(lifecycle: State = State.HEALTHY, **facts: Any) -> WorkerState:
    usual: dict[str, Any] = {"incarnation": 4, "deaths": 2, "ledger": DEATHS}
    return WorkerState("w", lifecycle, **usual | facts)


@pytest.mark.parametrize("lifecycle", sorted(LIVE))
@pytest.mark.parametrize("wish", ["", "up"])
def test_what_ended_with_the_daemon_starts_with_the_next(lifecycle: State, wish: str) -> None:
    outcome = end_with_daemon(living(lifecycle, wish=wish), NOW)
    assert outcome.state.wish == wish
    ended = gone(outcome)
    assert ended.state.lifecycle is State.STOPPED
    assert resume(POLICY, NOW, noted(ended.state)).actions == [Spawn(5)]
    # And the same where it was killed before the tree was gone.
    again = resume(POLICY, NOW, noted(outcome.state), Found.REST)
    assert gone(again).actions == [Spawn(5)]


def test_a_death_is_remembered_through_the_daemons_end() -> None:
    spent = Ledger((1.0, 2.0, 3.0), 3)
    dead = living(State.DEAD, cause="step", ledger=spent)
    ending = end_with_daemon(dead, NOW)
    assert not ending.actions, "its tree is being ended already"
    ended = buried(ending.state, POLICY, frozenset(), NOW, 0.0)
    assert ended.state.lifecycle is State.STOPPED
    assert resume(POLICY, NOW, noted(ended.state)).state.lifecycle is State.FAILED
    again = resume(POLICY, NOW, noted(ending.state), Found.REST)
    assert gone(again).state.lifecycle is State.FAILED


def test_a_delay_goes_on_through_the_daemons_end() -> None:
    waiting = living(State.RESTARTING, cause="exit", restart_at=Deadline(NOW + 60.0))
    ended = end_with_daemon(waiting, NOW)
    assert ended.state.lifecycle is State.STOPPED
    outcome = resume(POLICY, NOW + 5, noted(ended.state))
    assert outcome.state.lifecycle is State.RESTARTING
    assert outcome.state.restart_at.at == NOW + 60.0


@pytest.mark.parametrize("lifecycle", [State.STOPPED, State.FAILED])
def test_one_that_rests_is_left_as_it_is_when_the_daemon_ends(lifecycle: State) -> None:
    resting = living(lifecycle, sentence="gave up", cause="exit")
    assert end_with_daemon(resting, NOW).state == resting


def test_an_operators_stop_is_not_undone_by_the_daemons_end() -> None:
    stopping = command(living(), "stop", NOW).state
    outcome = end_with_daemon(stopping, NOW)
    ended = buried(outcome.state, POLICY, frozenset(), NOW, 0.0)
    assert resume(POLICY, NOW, noted(ended.state)).state.lifecycle is State.STOPPED


# Groups


@pytest.mark.parametrize("found", [Found.NOTHING, Found.REST, Found.LIFE])
@pytest.mark.parametrize("before", [State.HEALTHY, State.DEAD, State.RESTARTING, State.STOPPING])
def test_a_group_that_gave_up_stays_so(before: State, found: Found) -> None:
    state = give_up(living(before, cause="exit" if before is State.DEAD else ""), NOW, "all").state
    outcome = resume(POLICY, NOW, noted(state), found, incarnation=4)
    if found is not Found.NOTHING:
        outcome = gone(outcome)
    assert outcome.state.lifecycle is State.FAILED
    assert "all" in outcome.state.sentence
    assert not outcome.actions


@pytest.mark.parametrize("found", [Found.NOTHING, Found.REST, Found.LIFE])
def test_a_group_restart_is_brought_to_its_end(found: Found) -> None:
    state = regroup(living(), NOW, "with its group").state
    outcome = resume(POLICY, NOW, noted(state), found, incarnation=4)
    if found is not Found.NOTHING:
        outcome = gone(outcome)
    assert outcome.actions == [Spawn(5)]
    assert outcome.state.ledger == DEATHS
