"""The table of the lifecycle: what it lists, what it does not, and that nothing is unreachable."""

from __future__ import annotations

from pathlib import Path

import pytest
from stepwarden.core import lifecycle
from stepwarden.core.lifecycle import (
    ENDING,
    LIVE,
    RESTING,
    TABLE,
    State,
    Trigger,
    diagram,
    step,
)

S, T = State, Trigger

# Written out by hand, so that a new row in the table has to be taken out here knowingly.
UNLISTED: dict[State, set[Trigger]] = {
    S.STARTING: {
        T.CLEARED,
        T.CLEARED_UNREADY,
        T.WINDOW_GRANTED,
        T.CONDEMNED,
        T.BURIED,
        T.BURIED_UNWANTED,
        T.BURIED_SPENT,
        T.UNKILLABLE,
        T.FREED,
        T.FREED_UNWANTED,
        T.DELAY_OVER,
        T.START,
        T.ENDED,
        T.TURNED_OVER,
        T.ADOPT,
        T.BACK,
        T.BACK_UNREADY,
        T.CAME_BACK,
        T.GIVEN_UP,
        T.ENDED_GIVEN_UP,
    },
    S.HEALTHY: {
        T.READY,
        T.CLEARED,
        T.CLEARED_UNREADY,
        T.WINDOW_GRANTED,
        T.CONDEMNED,
        T.BURIED,
        T.BURIED_UNWANTED,
        T.BURIED_SPENT,
        T.UNKILLABLE,
        T.FREED,
        T.FREED_UNWANTED,
        T.DELAY_OVER,
        T.START,
        T.ENDED,
        T.TURNED_OVER,
        T.ADOPT,
        T.BACK,
        T.BACK_UNREADY,
        T.NOT_LET_IN,
        T.NOT_BACK,
        T.CAME_BACK,
        T.GIVEN_UP,
        T.ENDED_GIVEN_UP,
    },
    S.UNHEALTHY: {
        T.READY,
        T.DEADLINE_PASSED,
        T.BURIED,
        T.BURIED_UNWANTED,
        T.BURIED_SPENT,
        T.UNKILLABLE,
        T.FREED,
        T.FREED_UNWANTED,
        T.DELAY_OVER,
        T.START,
        T.ENDED,
        T.TURNED_OVER,
        T.ADOPT,
        T.BACK,
        T.BACK_UNREADY,
        T.NOT_LET_IN,
        T.NOT_BACK,
        T.CAME_BACK,
        T.GIVEN_UP,
        T.ENDED_GIVEN_UP,
    },
    S.DEAD: {
        T.READY,
        T.DEADLINE_PASSED,
        T.CLEARED,
        T.CLEARED_UNREADY,
        T.WINDOW_GRANTED,
        T.CONDEMNED,
        T.GONE,
        T.FREED,
        T.FREED_UNWANTED,
        T.DELAY_OVER,
        T.START,
        T.ENDED,
        T.TURNED_OVER,
        T.ADOPT,
        T.BACK,
        T.BACK_UNREADY,
        T.NOT_LET_IN,
        T.NOT_BACK,
        T.CAME_BACK,
        T.GIVEN_UP,
        T.ENDED_GIVEN_UP,
    },
    S.RESTARTING: {
        T.READY,
        T.DEADLINE_PASSED,
        T.CLEARED,
        T.CLEARED_UNREADY,
        T.WINDOW_GRANTED,
        T.CONDEMNED,
        T.GONE,
        T.BURIED,
        T.BURIED_UNWANTED,
        T.BURIED_SPENT,
        T.UNKILLABLE,
        T.FREED,
        T.FREED_UNWANTED,
        T.RESTART,
        T.ENDED,
        T.TURNED_OVER,
        T.ADOPT,
        T.BACK,
        T.BACK_UNREADY,
        T.NOT_LET_IN,
        T.NOT_BACK,
        T.CAME_BACK,
        T.ENDED_GIVEN_UP,
    },
    S.STOPPING: {
        T.READY,
        T.DEADLINE_PASSED,
        T.CLEARED,
        T.CLEARED_UNREADY,
        T.WINDOW_GRANTED,
        T.CONDEMNED,
        T.GONE,
        T.BURIED,
        T.BURIED_UNWANTED,
        T.BURIED_SPENT,
        T.FREED,
        T.FREED_UNWANTED,
        T.DELAY_OVER,
        T.STOP,
        T.RESTART,
        T.START,
        T.ADOPT,
        T.BACK,
        T.BACK_UNREADY,
        T.NOT_LET_IN,
        T.NOT_BACK,
        T.CAME_BACK,
        T.GIVEN_UP,
    },
    S.STOPPED: {
        T.READY,
        T.DEADLINE_PASSED,
        T.CLEARED,
        T.CLEARED_UNREADY,
        T.WINDOW_GRANTED,
        T.CONDEMNED,
        T.GONE,
        T.BURIED,
        T.BURIED_UNWANTED,
        T.BURIED_SPENT,
        T.UNKILLABLE,
        T.FREED,
        T.FREED_UNWANTED,
        T.DELAY_OVER,
        T.STOP,
        T.RESTART,
        T.ENDED,
        T.TURNED_OVER,
        T.BACK,
        T.BACK_UNREADY,
        T.NOT_LET_IN,
        T.NOT_BACK,
        T.CAME_BACK,
        T.GIVEN_UP,
        T.ENDED_GIVEN_UP,
    },
    S.FAILED: {
        T.READY,
        T.DEADLINE_PASSED,
        T.CLEARED,
        T.CLEARED_UNREADY,
        T.WINDOW_GRANTED,
        T.CONDEMNED,
        T.GONE,
        T.BURIED,
        T.BURIED_UNWANTED,
        T.BURIED_SPENT,
        T.UNKILLABLE,
        T.DELAY_OVER,
        T.RESTART,
        T.ENDED,
        T.TURNED_OVER,
        T.ADOPT,
        T.BACK,
        T.BACK_UNREADY,
        T.NOT_LET_IN,
        T.NOT_BACK,
        T.GIVEN_UP,
        T.ENDED_GIVEN_UP,
    },
    S.ADOPTED: {
        T.READY,
        T.DEADLINE_PASSED,
        T.CLEARED,
        T.CLEARED_UNREADY,
        T.WINDOW_GRANTED,
        T.CONDEMNED,
        T.BURIED,
        T.BURIED_UNWANTED,
        T.BURIED_SPENT,
        T.UNKILLABLE,
        T.FREED,
        T.FREED_UNWANTED,
        T.DELAY_OVER,
        T.START,
        T.ENDED,
        T.TURNED_OVER,
        T.ADOPT,
        T.NOT_LET_IN,
        T.NOT_BACK,
        T.CAME_BACK,
        T.GIVEN_UP,
        T.ENDED_GIVEN_UP,
    },
}

PAIRS = [(state, trigger) for state, triggers in UNLISTED.items() for trigger in triggers]


@pytest.mark.parametrize(("state", "trigger"), sorted(PAIRS))
def test_an_unlisted_pair_stays_put(state: State, trigger: Trigger) -> None:
    assert (state, trigger) not in TABLE
    assert step(state, trigger) is state


def test_every_pair_is_either_in_the_table_or_named_here() -> None:
    everything = {(state, trigger) for state in State for trigger in Trigger}
    assert set(TABLE) | set(PAIRS) == everything


@pytest.mark.parametrize(("state", "trigger"), sorted(TABLE))
def test_a_listed_pair_goes_where_the_table_says(state: State, trigger: Trigger) -> None:
    assert step(state, trigger) is TABLE[state, trigger]


@pytest.mark.parametrize("origin", list(State))
def test_every_state_can_be_reached_from_every_other(origin: State) -> None:
    reached = {origin}
    while True:
        further = reached | {to for (state, _), to in TABLE.items() if state in reached}
        if further == reached:
            break
        reached = further
    assert reached == set(State)


def test_every_trigger_moves_something() -> None:
    assert {trigger for _, trigger in TABLE} == set(Trigger)


def test_the_sets_of_states_do_not_overlap() -> None:
    assert not LIVE & ENDING
    assert not LIVE & RESTING
    assert not ENDING & RESTING
    assert LIVE | ENDING | RESTING | {S.RESTARTING} == set(State)


def test_only_the_operator_or_freed_leftovers_end_a_rest() -> None:
    moving = {trigger for (state, trigger) in TABLE if state in RESTING}
    by_daemon = {T.ADOPT, T.CAME_BACK}  # a new daemon; the platform
    assert moving <= {T.START, T.STOP, T.FREED, T.FREED_UNWANTED} | by_daemon


def test_a_new_life_begins_only_where_the_old_one_is_gone() -> None:
    """STARTING is entered from states without a tree, or by the report that the tree ended."""
    lives = {S.UNHEALTHY, S.ADOPTED}
    into = {pair for pair, to in TABLE.items() if to is S.STARTING and pair[0] not in lives}
    assert into == {
        (S.RESTARTING, T.DELAY_OVER),
        (S.RESTARTING, T.START),
        (S.STOPPED, T.START),
        (S.FAILED, T.START),
        (S.FAILED, T.CAME_BACK),
        (S.STOPPING, T.TURNED_OVER),
    }


def test_the_diagram_shows_every_row_once_in_a_stable_order() -> None:
    lines = diagram().splitlines()
    assert len(lines) == len(TABLE)
    assert diagram() == diagram()
    assert lines[0] == "STARTING   --[ ready ]--> HEALTHY"
    labels = [line[:10].strip() for line in lines if line[:10].strip()]
    assert labels == [state.value for state in State]
    for (_, trigger), target in TABLE.items():
        assert any(line.endswith(f"--[ {trigger.value} ]--> {target.value}") for line in lines)


def test_the_table_lists_nothing_that_cannot_happen() -> None:
    """Each trigger is fired somewhere in the core, and not only named in the table."""
    sources = [p.read_text() for p in Path(lifecycle.__file__).parent.glob("*.py")]
    fired = {t for t in Trigger if any(f"Trigger.{t.name}" in source for source in sources)}
    assert fired == {trigger for _, trigger in TABLE}
