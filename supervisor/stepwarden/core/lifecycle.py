"""The life of a worker: every state, every trigger, and the table that joins them.

    STARTING     its process is up or coming up, and it is not ready yet
    HEALTHY      ready, and no deadline has passed
    UNHEALTHY    a deadline has passed; evidence is gathered over retry windows
    DEAD         hung beyond doubt, or gone; its process tree is being ended
    RESTARTING   the tree is confirmed gone; the delay before the next life runs
    STOPPING     the operator said stop (or restart); its tree is being ended
    STOPPED      no process, and none wanted
    FAILED       no process wanted any more: the restart budget is spent, what is left of the old
                 tree cannot be killed, a gate did not open, or the platform did not bring it back
    ADOPTED      an earlier daemon started it and it runs on; what it does is not known yet

This file owns the rules. A pair of state and trigger that the table does not list stays put, and
tests/core/test_lifecycle.py names each such pair. The picture in the docs is printed from here.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a worker is in its life."""

    STARTING = "STARTING"
    HEALTHY = "HEALTHY"
    UNHEALTHY = "UNHEALTHY"
    DEAD = "DEAD"
    RESTARTING = "RESTARTING"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    ADOPTED = "ADOPTED"


class Trigger(StrEnum):
    """What can move a worker from one state to another."""

    READY = "ready"
    DEADLINE_PASSED = "a deadline passes"
    CLEARED = "every late thing ended by itself"
    CLEARED_UNREADY = "every late thing ended by itself, not ready yet"
    WINDOW_GRANTED = "window over, still working"
    CONDEMNED = "window over, not working, or hard cap"
    GONE = "its process ended"
    BURIED = "tree confirmed gone"
    BURIED_UNWANTED = "tree gone, policy says no restart"
    BURIED_SPENT = "tree gone, restart budget spent"
    UNKILLABLE = "something cannot be killed"
    FREED = "the unkillable is gone at last"
    FREED_UNWANTED = "the unkillable is gone, no restart wanted"
    DELAY_OVER = "restart delay over"
    STOP = "operator: stop"
    RESTART = "operator: restart"
    START = "operator: start"
    ENDED = "tree ended as asked"
    TURNED_OVER = "tree ended, restart was asked"
    ADOPT = "a daemon starts and finds it alive"
    BACK = "its agent or page shows what it does"
    BACK_UNREADY = "seen again, not ready yet"
    NOT_LET_IN = "its gate stays shut"
    NOT_BACK = "the platform did not start it in time"
    CAME_BACK = "the platform has started it at last"
    GIVEN_UP = "restart budget of its group spent"
    ENDED_GIVEN_UP = "tree ended, its group has given up"


S, T = State, Trigger

TABLE: dict[tuple[State, Trigger], State] = {
    (S.STARTING, T.READY): S.HEALTHY,
    (S.STARTING, T.DEADLINE_PASSED): S.UNHEALTHY,
    (S.HEALTHY, T.DEADLINE_PASSED): S.UNHEALTHY,
    (S.UNHEALTHY, T.CLEARED): S.HEALTHY,
    (S.UNHEALTHY, T.CLEARED_UNREADY): S.STARTING,
    (S.UNHEALTHY, T.WINDOW_GRANTED): S.UNHEALTHY,
    (S.UNHEALTHY, T.CONDEMNED): S.DEAD,
    (S.STARTING, T.GONE): S.DEAD,
    (S.HEALTHY, T.GONE): S.DEAD,
    (S.UNHEALTHY, T.GONE): S.DEAD,
    (S.DEAD, T.BURIED): S.RESTARTING,
    (S.DEAD, T.BURIED_UNWANTED): S.STOPPED,
    (S.DEAD, T.BURIED_SPENT): S.FAILED,
    (S.DEAD, T.UNKILLABLE): S.FAILED,
    (S.FAILED, T.FREED): S.RESTARTING,
    (S.FAILED, T.FREED_UNWANTED): S.STOPPED,
    (S.RESTARTING, T.DELAY_OVER): S.STARTING,
    (S.STARTING, T.STOP): S.STOPPING,
    (S.HEALTHY, T.STOP): S.STOPPING,
    (S.UNHEALTHY, T.STOP): S.STOPPING,
    (S.DEAD, T.STOP): S.STOPPING,
    (S.RESTARTING, T.STOP): S.STOPPED,
    (S.FAILED, T.STOP): S.STOPPED,
    (S.STARTING, T.RESTART): S.STOPPING,
    (S.HEALTHY, T.RESTART): S.STOPPING,
    (S.UNHEALTHY, T.RESTART): S.STOPPING,
    (S.DEAD, T.RESTART): S.STOPPING,
    (S.STOPPING, T.ENDED): S.STOPPED,
    (S.STOPPING, T.TURNED_OVER): S.STARTING,
    (S.STOPPING, T.UNKILLABLE): S.FAILED,
    (S.RESTARTING, T.START): S.STARTING,
    (S.STOPPED, T.START): S.STARTING,
    (S.FAILED, T.START): S.STARTING,
    (S.STOPPED, T.ADOPT): S.ADOPTED,
    (S.ADOPTED, T.BACK): S.HEALTHY,
    (S.ADOPTED, T.BACK_UNREADY): S.STARTING,
    (S.ADOPTED, T.GONE): S.DEAD,
    (S.ADOPTED, T.STOP): S.STOPPING,
    (S.ADOPTED, T.RESTART): S.STOPPING,
    (S.STARTING, T.NOT_LET_IN): S.FAILED,
    (S.STARTING, T.NOT_BACK): S.FAILED,
    (S.FAILED, T.CAME_BACK): S.STARTING,
    (S.RESTARTING, T.GIVEN_UP): S.FAILED,
    (S.STOPPING, T.ENDED_GIVEN_UP): S.FAILED,
}

LIVE = frozenset({State.STARTING, State.HEALTHY, State.UNHEALTHY, State.ADOPTED})
"""States in which the loop looks at a worker."""

ENDING = frozenset({State.DEAD, State.STOPPING})
"""States in which its tree is being ended; the judge sleeps."""

RESTING = frozenset({State.STOPPED, State.FAILED})
"""States that only the operator (or a freed unkillable process) ends."""


def step(state: State, trigger: Trigger) -> State:
    """The next state; an unlisted pair stays put."""
    return TABLE.get((state, trigger), state)


def diagram() -> str:
    """The table as text, one block per state, for the docs."""
    lines: list[str] = []
    for state in State:
        rows = [(t, to) for (origin, t), to in TABLE.items() if origin is state]
        for index, (trigger, target) in enumerate(rows):
            label = state.value if index == 0 else ""
            lines.append(f"{label:<10} --[ {trigger.value} ]--> {target.value}")
    return "\n".join(lines)
