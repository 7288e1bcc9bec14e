"""Every word that is said to a worker, in every state it can be in."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from stepwarden.core.action import Action, EndTree, Spawn
from stepwarden.core.burying import buried
from stepwarden.core.commands import command, end_with_daemon, give_up, regroup
from stepwarden.core.deadline import Deadline
from stepwarden.core.event import Kind
from stepwarden.core.evidence import ProcessId
from stepwarden.core.lifecycle import LIVE, State
from stepwarden.core.policy import RestartPolicy, WorkerPolicy
from stepwarden.core.restarts import Ledger
from stepwarden.core.worker import Outcome, WorkerState

S = State
NOW = 1000.0
POLICY = WorkerPolicy("w", restart=RestartPolicy(delay=10.0, jitter=0.0))
LEFT = frozenset({ProcessId(77, 7)})
USED = Ledger((900.0, 950.0), 2)
END, NEXT = EndTree(3), Spawn(4)


def worker(lifecycle: State, **facts: Any) -> WorkerState:
    usual: dict[str, Any] = {"incarnation": 3, "ledger": USED, "cause": "step"}
    if lifecycle is S.RESTARTING:
        usual["restart_at"] = Deadline(NOW + 60.0)
    return WorkerState("w", lifecycle, **usual | facts)


def gone(outcome: Outcome) -> Outcome:
    return buried(outcome.state, POLICY, frozenset(), NOW + 1.0, 0.0)


Row = tuple[str, State, State, list[Action]]


def each_live(word: str, then: State | None, *actions: Action) -> list[Row]:
    return [(word, state, then or state, list(actions)) for state in sorted(LIVE)]


ROWS: list[Row] = [
    *each_live("start", None),
    ("start", S.DEAD, S.STOPPING, []),
    ("start", S.STOPPING, S.STOPPING, []),
    ("start", S.RESTARTING, S.STARTING, [NEXT]),
    ("start", S.STOPPED, S.STARTING, [NEXT]),
    ("start", S.FAILED, S.STARTING, [NEXT]),
    *each_live("stop", S.STOPPING, END),
    ("stop", S.DEAD, S.STOPPING, []),
    ("stop", S.STOPPING, S.STOPPING, []),
    ("stop", S.RESTARTING, S.STOPPED, []),
    ("stop", S.STOPPED, S.STOPPED, []),
    ("stop", S.FAILED, S.STOPPED, []),
    *each_live("restart", S.STOPPING, END),
    ("restart", S.DEAD, S.STOPPING, []),
    ("restart", S.STOPPING, S.STOPPING, []),
    ("restart", S.RESTARTING, S.STARTING, [NEXT]),
    ("restart", S.STOPPED, S.STARTING, [NEXT]),
    ("restart", S.FAILED, S.STARTING, [NEXT]),
]


def test_the_rows_name_each_word_in_each_state() -> None:
    assert {(word, state) for word, state, _, _ in ROWS} == {
        (word, state) for word in ("start", "stop", "restart") for state in State
    }
    assert len(ROWS) == 3 * len(State)


@pytest.mark.parametrize("give_up_text", ["", "its group gave up"])
@pytest.mark.parametrize(("word", "before", "then", "actions"), ROWS)
def test_the_operators_word(
    word: str, before: State, then: State, actions: list[Action], give_up_text: str
) -> None:
    outcome = command(worker(before, give_up=give_up_text), word, NOW)
    state = outcome.state
    assert state.lifecycle is then
    assert outcome.actions == actions
    assert state.wish == ("down" if word == "stop" else "up")
    assert outcome.events[0].kind is Kind.OPERATOR
    if then is S.STOPPING:
        last = gone(outcome)
        assert last.state.lifecycle is (S.STOPPED if word == "stop" else S.STARTING)
        assert last.actions == ([] if word == "stop" else [NEXT])
    if word != "stop" and before not in LIVE:
        assert state.ledger == Ledger(), "counters at zero"


@pytest.mark.parametrize("word", ["start", "restart"])
def test_nothing_is_started_beside_what_cannot_be_killed(word: str) -> None:
    state = worker(S.FAILED, leftovers=LEFT, wish="down")
    outcome = command(state, word, NOW)
    assert outcome.refusal is not None
    assert "77" in outcome.refusal
    assert outcome.state == state, "the wish neither"


def test_the_last_word_counts() -> None:
    state = worker(S.HEALTHY)
    for word in ("restart", "stop", "start", "stop"):
        state = command(state, word, NOW).state
    assert buried(state, POLICY, frozenset(), NOW, 0.0).state.lifecycle is S.STOPPED
    state = command(state, "start", NOW).state
    assert buried(state, POLICY, frozenset(), NOW, 0.0).actions == [NEXT]


# Its group


@pytest.mark.parametrize("before", list(State))
def test_its_group_starts_again(before: State) -> None:
    state = worker(before)
    outcome = regroup(state, NOW, "restarted with its group")
    if before not in LIVE:
        assert outcome.state == state, "it comes or rests for a reason of its own"
        assert not outcome.events
        return
    assert outcome.state.lifecycle is S.STOPPING
    assert outcome.actions == [END]
    after = gone(outcome)
    assert after.actions == [NEXT]
    assert (after.state.deaths, after.state.ledger) == (0, USED), "no death of its own"


@pytest.mark.parametrize("before", list(State))
def test_its_group_gives_up(before: State) -> None:
    state = worker(before)
    outcome = give_up(state, NOW, "group g gave up")
    if before in {S.STOPPED, S.FAILED}:
        assert outcome.state == state
        return
    assert outcome.actions == ([END] if before in LIVE else [])
    if before is not S.RESTARTING:
        assert outcome.state.lifecycle in {S.STOPPING, S.DEAD}
        outcome = gone(outcome)
    assert outcome.state.lifecycle is S.FAILED
    assert "group g gave up" in outcome.state.sentence
    assert not outcome.actions
    assert command(outcome.state, "start", NOW).actions == [NEXT]


def test_a_restart_under_way_ends_too_when_the_group_gives_up() -> None:
    state = regroup(worker(S.HEALTHY), NOW, "again").state
    assert gone(give_up(state, NOW, "no more")).state.lifecycle is S.FAILED


@pytest.mark.parametrize("first", ["stop", "give up"])
def test_a_stop_outranks_a_group_that_gives_up(first: str) -> None:
    """Whichever came first: what the operator stopped is STOPPED, not FAILED."""
    state = worker(S.HEALTHY)
    if first == "stop":
        state = give_up(command(state, "stop", NOW).state, NOW, "no more").state
    else:
        state = command(give_up(state, NOW, "no more").state, "stop", NOW).state
    assert buried(state, POLICY, frozenset(), NOW, 0.0).state.lifecycle is S.STOPPED


@pytest.mark.parametrize("before", [S.DEAD, S.HEALTHY])
@pytest.mark.parametrize("late", [True, False])
def test_a_group_that_gave_up_does_not_start_what_is_freed_at_last(
    before: State, late: bool
) -> None:
    state = worker(before)
    if not late:
        state = give_up(state, NOW, "no more").state
    elif before is S.HEALTHY:
        state = regroup(state, NOW, "again").state
    state = buried(state, POLICY, LEFT, NOW, 0.0).state
    assert state.lifecycle is S.FAILED
    if late:
        state = give_up(state, NOW, "no more").state
    freed = buried(state, POLICY, frozenset(), NOW, 0.0)
    assert freed.state.lifecycle is S.FAILED
    assert freed.state.sentence.startswith("no more")
    assert command(freed.state, "start", NOW).actions == [NEXT]


def test_a_stuck_member_that_the_operator_stopped_stays_stopped() -> None:
    state = command(worker(S.HEALTHY), "stop", NOW).state
    state = buried(state, POLICY, LEFT, NOW, 0.0).state
    state = give_up(state, NOW, "no more").state
    assert buried(state, POLICY, frozenset(), NOW, 0.0).state.lifecycle is S.STOPPED


# The daemon that ends


@pytest.mark.parametrize("before", list(State))
def test_a_daemon_that_ends_takes_it_along_and_wishes_nothing(before: State) -> None:
    state = worker(before, wish="up", restart_wanted=before is S.STOPPING)
    outcome = end_with_daemon(state, NOW)
    assert outcome.state.wish == "up"
    if before in {S.STOPPED, S.FAILED}:
        assert outcome.state == state
        return
    assert outcome.actions == ([END] if before in LIVE else [])
    after = outcome if before is S.RESTARTING else gone(outcome)
    assert after.state.lifecycle is S.STOPPED
    assert not after.actions
    assert after.state.ledger == USED


def test_what_the_daemon_could_not_end_is_not_started_by_it_any_more() -> None:
    state = end_with_daemon(worker(S.HEALTHY), NOW).state
    stuck = buried(state, POLICY, LEFT, NOW, 0.0).state
    assert stuck.lifecycle is S.FAILED
    assert end_with_daemon(stuck, NOW).state == stuck
    freed = buried(replace(stuck), POLICY, frozenset(), NOW, 0.0)
    assert freed.state.lifecycle is S.STOPPED
    assert not freed.actions
