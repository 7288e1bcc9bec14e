"""Groups: who starts again with whom, and the one budget they share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.core import groups
from stepwarden.core.burying import buried
from stepwarden.core.commands import command, give_up, regroup
from stepwarden.core.groups import (
    GroupPolicy,
    GroupState,
    OnDead,
    before,
    companions,
    member_died,
    started_again,
)
from stepwarden.core.lifecycle import State
from stepwarden.core.policy import RestartPolicy, WorkerPolicy
from stepwarden.core.restarts import Ledger
from stepwarden.core.worker import WorkerState

NAMES = ("prefill", "decode", "router")
RESTART = RestartPolicy(limit=3, within=100.0, stable=50.0)


def group(on_dead: OnDead = OnDead.GROUP) -> GroupPolicy:
    return GroupPolicy("pd", NAMES, on_dead, RESTART)


@pytest.mark.parametrize(
    ("on_dead", "dead", "others"),
    [
        (OnDead.MEMBER, "prefill", ()),
        (OnDead.MEMBER, "router", ()),
        (OnDead.GROUP, "prefill", ("decode", "router")),
        (OnDead.GROUP, "decode", ("prefill", "router")),
        (OnDead.GROUP, "router", ("prefill", "decode")),
        (OnDead.REST, "prefill", ("decode", "router")),
        (OnDead.REST, "decode", ("router",)),
        (OnDead.REST, "router", ()),
    ],
)
def test_who_starts_again_with_whom(on_dead: OnDead, dead: str, others: tuple[str, ...]) -> None:
    policy = group(on_dead)
    assert companions(policy, dead) == others
    then = member_died(policy, GroupState(), dead, 0.0, 10.0)
    assert (then.restart, then.failed) == (others, False)
    assert (dead in then.sentence) == bool(others)


def test_the_members_start_in_their_order() -> None:
    assert [before(group(), name) for name in NAMES] == [(), NAMES[:1], NAMES[:2]]


@pytest.mark.parametrize("on_dead", list(OnDead))
def test_deaths_of_all_members_count_together_and_the_last_is_named(on_dead: OnDead) -> None:
    state = GroupState()
    for number, name in enumerate(("prefill", "router")):
        then = member_died(group(on_dead), state, name, 0.0, 10.0 * number)
        assert not then.failed
        state = then.state
    then = member_died(group(on_dead), state, "decode", 0.0, 30.0)
    assert then.failed
    assert not then.restart
    for word in ("pd", "decode", "3 deaths", "restart.limit 3"):
        assert word in then.sentence


def test_stable_uptime_and_time_make_them_count_no_more() -> None:
    state = GroupState()
    for number in range(20):
        then = member_died(group(), state, NAMES[number % 3], 60.0, 61.0 * number)
        assert not then.failed
        state = then.state


def test_without_stable_uptime_the_row_counts_however_long_it_takes() -> None:
    state = GroupState()
    for number in range(3):
        then = member_died(group(), state, "decode", 49.0, 5000.0 * number)
        state = then.state
    assert then.failed


def test_the_operators_start_gives_the_group_a_new_budget() -> None:
    state = GroupState()
    for number in range(3):
        state = member_died(group(), state, "decode", 0.0, float(number)).state
    assert not member_died(group(), started_again(state), "decode", 0.0, 4.0).failed


@given(
    st.sampled_from(OnDead),
    st.lists(st.tuples(st.sampled_from(NAMES), st.floats(0.0, 60.0), st.floats(0.0, 60.0))),
)
def test_the_budget_of_the_group_is_never_exceeded(
    on_dead: OnDead, deaths: list[tuple[str, float, float]]
) -> None:
    state, now, row = GroupState(), 0.0, 0
    recent: list[float] = []
    for name, uptime, rest in deaths:
        now += rest
        row = 1 if uptime >= RESTART.stable else row + 1
        recent = [at for at in recent if now - at <= RESTART.within] + [now]
        then = member_died(group(on_dead), state, name, uptime, now)
        assert then.failed == (row >= RESTART.limit or len(recent) >= RESTART.limit)
        assert name not in then.restart
        if then.failed:
            state, row, recent = started_again(then.state), 0, []
        else:
            state = then.state


# What it means for the workers


POLICY = WorkerPolicy("w")


def crew(**states: State) -> dict[str, WorkerState]:
    return {n: WorkerState(n, states.get(n, State.HEALTHY), incarnation=1) for n in NAMES}


def bury_all(workers: dict[str, WorkerState], now: float) -> dict[str, WorkerState]:
    return {n: buried(w, POLICY, frozenset(), now, 0.0).state for n, w in workers.items()}


def follow(workers: dict[str, WorkerState], dead: str, state: GroupState, now: float) -> GroupState:
    then = member_died(group(), state, dead, 0.0, now)
    for name in NAMES if then.failed else then.restart:
        told = give_up if then.failed else regroup
        workers[name] = told(workers[name], now, then.sentence).state
    return then.state


def test_one_that_the_operator_stopped_stays_stopped_through_it_all() -> None:
    workers = crew(prefill=State.DEAD)
    workers["router"] = command(workers["router"], "stop", 0.0).state
    follow(workers, "prefill", GroupState(), 1.0)
    workers = bury_all(workers, 2.0)
    assert [w.lifecycle for w in workers.values()] == [
        State.RESTARTING,
        State.STARTING,
        State.STOPPED,
    ]


def test_a_spent_budget_makes_every_member_failed_and_says_why() -> None:
    state = GroupState()
    for now in (1.0, 2.0):
        state = member_died(group(), state, "decode", 0.0, now).state
    workers = crew(decode=State.DEAD, router=State.RESTARTING)
    follow(workers, "decode", state, 3.0)
    workers = bury_all(workers, 4.0)
    for worker in workers.values():
        assert worker.lifecycle is State.FAILED
        assert "group pd gave up after 3 deaths" in worker.sentence
        assert "the last was decode" in worker.sentence


def test_two_that_die_together_start_once_each() -> None:
    """Regroup finds the other DEAD already, and leaves it to its own burial."""
    workers = crew(prefill=State.DEAD, decode=State.DEAD)
    state = follow(workers, "prefill", GroupState(), 1.0)
    follow(workers, "decode", state, 1.0)
    assert workers["router"].lifecycle is State.STOPPING
    workers = bury_all(workers, 2.0)
    assert [w.lifecycle for w in workers.values()] == [
        State.RESTARTING,
        State.RESTARTING,
        State.STARTING,
    ]


def test_after_a_restart_of_the_daemon_a_group_never_gives_up_earlier() -> None:
    """Two members with a row of 2 each are no row of 4; what fell within the time counts whole."""
    recalled = groups.recalled([Ledger((1.0, 5.0), 2), Ledger((3.0,), 2), Ledger()])
    assert recalled.ledger == Ledger((1.0, 3.0, 5.0), 2)
    assert groups.recalled([]).ledger == Ledger()
