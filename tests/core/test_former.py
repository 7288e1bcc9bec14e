"""What began before a reload keeps what it was given, wherever that is more."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from stepwarden.core.awareness import Awareness
from stepwarden.core.budget import Formula
from stepwarden.core.clocks import Cause
from stepwarden.core.evidence import RankEvidence, Step, WorkerEvidence
from stepwarden.core.former import MOST, with_former
from stepwarden.core.lifecycle import State
from stepwarden.core.policy import AGENT_NONE, AGENT_REQUIRED, WorkerPolicy
from stepwarden.core.reconfigured import added, judged_anew, let_go, let_start, removed
from stepwarden.core.turn import advance, clocks_of
from stepwarden.core.worker import WorkerState

AWAKE = Awareness()


def policy(base: float, **more: object) -> WorkerPolicy:
    rule = Formula(base=base, per_seq=0.0, maximum=1e6)
    return replace(WorkerPolicy("w", step=rule, first_step=0.1, window=5.0), **more)  # type: ignore[arg-type]


def stepping(number: int, begin: float) -> WorkerEvidence:
    rank = RankEvidence(
        attached_at=0.0,
        beat_at=begin,
        moved_at=begin,
        phase="decode",
        page_readable=True,
        steps=(Step(number, begin, 1, 1),),
        steps_begun=number,
        steps_ended=number - 1,
    )
    return WorkerEvidence(ranks={"0": rank})


def healthy() -> WorkerState:
    return WorkerState("w", State.HEALTHY, incarnation=1, ready_at=1.0, came_up=frozenset({"0"}))


def step_budget(state: WorkerState, rules: WorkerPolicy, seen: WorkerEvidence, now: float) -> float:
    clocks = clocks_of(state, rules, seen, AWAKE, now)
    return next(clock.budget for clock in clocks if clock.cause is Cause.STEP)


@given(st.lists(st.floats(0.5, 500.0), min_size=1, max_size=2 * MOST), st.floats(0.5, 500.0))
def test_an_open_step_has_the_largest_budget_since_it_began(
    reloads: list[float], first: float
) -> None:
    state, rules = healthy(), policy(first)
    for at, base in enumerate(reloads):
        after = policy(base)
        state = judged_anew(state, rules, after, 20.0 + at).state
        rules = after
    known = [first, *reloads][-MOST - 1 :]
    got = step_budget(state, rules, stepping(7, 10.0), 40.0)
    assert got >= max(known) - 1e-9 or len(state.former) == MOST
    assert step_budget(state, rules, stepping(8, 50.0), 51.0) == reloads[-1]


def test_a_smaller_budget_makes_nobody_late_and_holds_from_the_next_step_on() -> None:
    state = judged_anew(healthy(), policy(300.0), policy(10.0), 100.0).state
    after = advance(state, policy(10.0), stepping(5, 10.0), AWAKE, 200.0).state
    assert after.lifecycle is State.HEALTHY
    assert after.former, "its step is still open"
    after = advance(after, policy(10.0), stepping(6, 201.0), AWAKE, 202.0).state
    assert after.former == (), "nothing of before is open"
    after = advance(after, policy(10.0), stepping(6, 201.0), AWAKE, 212.0).state
    assert after.lifecycle is State.UNHEALTHY


def test_a_larger_budget_brings_an_unhealthy_worker_back_at_once() -> None:
    state = advance(healthy(), policy(10.0), stepping(5, 10.0), AWAKE, 21.0).state
    assert state.lifecycle is State.UNHEALTHY
    state = judged_anew(state, policy(10.0), policy(300.0), 22.0).state
    outcome = advance(state, policy(300.0), stepping(5, 10.0), AWAKE, 22.0)
    assert outcome.state.lifecycle is State.HEALTHY
    told = [event.sentence for event in outcome.events]
    assert any("goes on and has more time now" in text for text in told), told


def test_an_agent_that_is_asked_for_now_has_its_time_from_now_on() -> None:
    none, required = policy(10.0, agent=AGENT_NONE), policy(10.0, agent=AGENT_REQUIRED)
    state = judged_anew(healthy(), none, required, 1000.0).state
    after = advance(state, required, WorkerEvidence(), AWAKE, 1001.0).state
    assert after.lifecycle is State.HEALTHY
    after = advance(after, required, WorkerEvidence(), AWAKE, 1031.0).state
    assert after.lifecycle is State.UNHEALTHY


def test_a_shorter_wait_for_a_platform_holds_for_the_next_wait() -> None:
    long = policy(1.0, attached=True, expect_external=600.0)
    short = replace(long, expect_external=1.0)
    state = replace(healthy(), lifecycle=State.STARTING, ready_at=None, spawned_at=0.0)
    state = judged_anew(state, long, short, 100.0).state
    waits = WorkerEvidence(held="waits for its agent")
    assert advance(state, short, waits, AWAKE, 101.0).state.lifecycle is State.STARTING
    assert advance(state, short, waits, AWAKE, 601.0).state.lifecycle is State.FAILED


def test_the_same_policy_is_remembered_once_and_no_more_than_some() -> None:
    one, other = policy(1.0), policy(2.0)
    formers = with_former((), one, one, 1.0)
    assert formers == ()
    for at in range(3 * MOST):
        formers = with_former(formers, one, other, float(at))
        formers = with_former(formers, other, one, float(at))
    assert len(formers) <= MOST


def test_a_removal_and_what_may_follow_it() -> None:
    gone = removed(healthy(), 5.0)
    assert gone.state.lifecycle is State.STOPPING
    assert gone.actions
    back = added(gone.state, policy(1.0), 6.0)
    assert back.state.restart_wanted
    assert not back.state.stop_wanted
    assert removed(WorkerState("w", State.FAILED), 5.0).state.lifecycle is State.STOPPED
    assert not removed(WorkerState("w"), 5.0).actions


def test_who_is_new_starts_unless_somebody_said_no() -> None:
    assert added(WorkerState("w"), policy(1.0), 1.0).state.lifecycle is State.STARTING
    rests = policy(1.0, autostart=False)
    assert added(WorkerState("w"), rests, 1.0).state.lifecycle is State.STOPPED
    stopped = WorkerState("w", wish="down", incarnation=3)
    assert added(stopped, policy(1.0), 1.0).state.lifecycle is State.STOPPED
    assert let_start(stopped, 1.0).state.lifecycle is State.STOPPED
    assert let_start(WorkerState("w"), 1.0).state.lifecycle is State.STARTING


def test_what_others_started_is_let_go_without_a_signal() -> None:
    rests, goes_on = (let_go(healthy(), 5.0, removed=gone) for gone in (True, False))
    assert rests.state.lifecycle is State.STOPPED
    assert not rests.actions
    assert goes_on.state.lifecycle is State.STARTING
    assert [type(action).__name__ for action in goes_on.actions] == ["Spawn"]
