"""An operator's start, stop and restart: when one has come about, is overtaken, and what to say."""

from __future__ import annotations

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline
from stepwarden.edge.event_hub import Subscription
from stepwarden.edge.views import WorkerView
from stepwarden.errors import ActionFailedError
from stepwarden.waiting import wait

START = "start"
STOP = "stop"
RESTART = "restart"

_UP = frozenset({"STARTING", "HEALTHY", "UNHEALTHY", "ADOPTED"})
_GOAL = {START: "STARTING", STOP: "STOPPED", RESTART: "STARTING"}


class LastCommands:
    """The last command that was taken for each worker: it is the one that holds."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def took(self, name: str, action: str) -> None:
        """The daemon has just taken `action` for the worker `name`."""
        self._last[name] = action

    def overtaker(self, name: str, action: str) -> str:
        """The later command that leads elsewhere than `action`; "" where there is none."""
        last = self._last.get(name, action)
        return "" if _GOAL[last] == _GOAL[action] else last


class CommandWait:
    """Waits for one command that was taken while the worker was as `before` shows it."""

    def __init__(self, action: str, before: WorkerView, last: LastCommands) -> None:
        self._action = action
        self._before = before
        self._last = last

    def done(self, view: WorkerView | None, told: Subscription) -> bool:
        """True when it has come about, or cannot any more. ActionFailedError: it is overtaken."""
        if settled(self._action, self._before, view):
            return True
        # What is still in the queue may say that it came about before it was overtaken.
        if view is not None and told.drained:
            self._must_hold(view)
        return False

    async def next(self, told: Subscription, deadline: Deadline, clock: Clock) -> bool:
        """Wait for the next event; True where it says that the command has come about.

        TimeoutError at the deadline.
        """
        recorded = await wait(told.next(), deadline, clock)
        # A state that came and went between two looks is still in the events.
        return recorded is not None and recorded.event.to_state == _GOAL[self._action]

    def _must_hold(self, view: WorkerView) -> None:
        later = self._last.overtaker(view.name, self._action)
        new_life = self._action == STOP and view.incarnation != self._before.incarnation
        if later or (new_life and view.state in _UP):
            by = f"a later {later}" if later else "a new life"
            text = f"the {self._action} of {view.name} was overtaken by {by}"
            raise ActionFailedError(f"{text}; it is {view.state}")


def settled(action: str, before: WorkerView, view: WorkerView | None) -> bool:
    """True when a command has come about, or cannot any more."""
    if view is None:
        return True
    fresh = view.incarnation != before.incarnation
    if view.state == "FAILED":
        return action == STOP or fresh or before.state != "FAILED"
    if action == STOP:
        return view.state == "STOPPED"
    return view.state in _UP and (fresh or action == START)


def failed(action: str, before: WorkerView, view: WorkerView) -> bool:
    """True where the command ended in FAILED and not only found it so."""
    return view.state == "FAILED" and (action != STOP or before.state != "FAILED")


def outcome(action: str, before: WorkerView, view: WorkerView) -> str:
    """What came of a command, as one fact."""
    if view.state != before.state:
        return f"{view.name}: {before.state} -> {view.state}"
    if view.incarnation != before.incarnation:
        return f"{view.name} is {view.state} in a new incarnation"
    if settled(action, before, view):
        return f"{view.name} is {view.state} already"
    return f"{view.name} is {view.state}; the {action} goes on"
