"""Judges again what was recorded, by the same rules or by others.

Each call of the recording is made again, with the state that came of the calls before it. By the
same rules the same events must come of it. By other rules a worker may die where it lived on, or
live where it died. What the recording shows of it then is of no use any more, until its next life
begins there; from that on it is judged again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from stepwarden.core import turn as _turn  # noqa: F401  (its function is among the calls)
from stepwarden.core.burying import buried
from stepwarden.core.calls import CALLS
from stepwarden.core.deadline import elapsed
from stepwarden.core.event import Event, Kind
from stepwarden.core.lifecycle import LIVE, State
from stepwarden.core.policy import WorkerPolicy
from stepwarden.core.worker import Outcome, WorkerState
from stepwarden.replay.codec import UnreadableError
from stepwarden.replay.lines import Asked, Head, Known, Record

Policies = Mapping[str, WorkerPolicy]

_FOR_THE_FILE = frozenset({"judged_anew"})
"""Calls that only tell of a new configuration; other rules take its place."""


@dataclass(frozen=True, slots=True)
class Happened:
    """An event, and when: monotonic seconds of the daemon that recorded, and since 1970.

    `wall` None: nobody knows.
    """

    at: float
    event: Event
    wall: float | None = None


@dataclass(slots=True)
class Played:
    """What came of a recording by some rules. `unlike`: where it was not as recorded."""

    happened: list[Happened] = field(default_factory=list)
    unlike: list[str] = field(default_factory=list)
    calls: int = 0


class _Player:
    """What both have in common: each daemon of a recording begins afresh."""

    def __init__(self) -> None:
        self.states: dict[str, WorkerState] = {}
        self.played = Played()
        self._head: Head | None = None

    def _begin(self, head: Head) -> bool:
        """The first line of a file; True where it is another daemon's than the one before."""
        other = self._head is None or head.run != self._head.run
        if other:
            self.states.clear()
        self._head = head
        return other

    def _happen(self, record: Asked, events: Iterable[Event]) -> None:
        now, head = instant(record), self._head
        wall = None if head is None else _wall(head, now)
        self.played.happened += [Happened(now, event, wall) for event in events]


class AsRecorded(_Player):
    """Makes the calls of a recording again and compares what comes of them."""

    def take(self, record: Record) -> None:
        """One more record."""
        if isinstance(record, Head):
            self._begin(record)
        elif isinstance(record, Known):
            self._know(record)
        else:
            self._make(record)

    def _make(self, record: Asked) -> None:
        state = self.states.get(record.worker)
        if state is None:
            raise UnreadableError(f"nothing is known of {record.worker} before its first call")
        outcome = make(record, state)
        self.states[record.worker] = outcome.state
        self.played.calls += 1
        self._happen(record, outcome.events)
        if tuple(outcome.events) != record.events:
            text = f"{record.worker}: {record.name} at {instant(record):.3f} gives"
            text += f" {_told(outcome.events)}; recorded is {_told(record.events)}"
            self.played.unlike.append(text)

    def _know(self, record: Known) -> None:
        state = self.states.get(record.worker)
        if state is not None and state != record.state and state.lifecycle in LIVE:
            self.played.unlike.append(f"{record.worker}: {_differing(state, record.state)}")
        self.states[record.worker] = record.state


class ByOtherRules(_Player):
    """Makes the calls again under other policies; workers without one keep theirs."""

    def __init__(self, policies: Policies) -> None:
        super().__init__()
        self._policies = policies
        self._apart: set[str] = set()

    def take(self, record: Record, recorded: Mapping[str, WorkerState]) -> None:
        """One more record; `recorded`: where the workers stand by the recording after it."""
        if isinstance(record, Head):
            if self._begin(record):
                self._apart.clear()
            return
        if isinstance(record, Known):
            self.states.setdefault(record.worker, replace(record.state, former=()))
            return
        self.played.calls += 1
        there = recorded[record.worker]
        if record.worker in self._apart:
            self._meet_again(record, there)
        elif record.name not in _FOR_THE_FILE:
            self._make(record, there)

    def _make(self, record: Asked, there: WorkerState) -> None:
        state = self.states[record.worker]
        outcome = make(self._ruled(record), state)
        self._note(record, outcome)
        if (outcome.state.lifecycle in LIVE) != (there.lifecycle in LIVE):
            self._part(record, outcome.state)

    def _part(self, record: Asked, state: WorkerState) -> None:
        """From here on the recording shows another worker than the one that is judged."""
        self._apart.add(record.worker)
        if state.lifecycle is State.DEAD:
            # Nobody knows how long its burial would have taken; that it has an end is assumed.
            policy = self._policy(record)
            if policy is not None:
                self._note(record, buried(state, policy, frozenset(), instant(record), 0.0))

    def _meet_again(self, record: Asked, there: WorkerState) -> None:
        mine = self.states[record.worker]
        given_up = mine.lifecycle is State.FAILED and record.name != "command"
        if there.incarnation <= mine.incarnation or there.lifecycle not in LIVE or given_up:
            return
        self._apart.discard(record.worker)
        begun = replace(
            there,
            former=(),
            ledger=mine.ledger,
            deaths=mine.deaths,
            false_alarms=mine.false_alarms,
        )
        self.states[record.worker] = begun
        text = "its next life, as recorded"
        event = Event(
            Kind.TRANSITION,
            text,
            record.worker,
            begun.life,
            mine.lifecycle.value,
            there.lifecycle.value,
        )
        self._happen(record, [event])

    def _note(self, record: Asked, outcome: Outcome) -> None:
        self.states[record.worker] = outcome.state
        self._happen(record, outcome.events)

    def _ruled(self, record: Asked) -> Asked:
        policy = self._policies.get(record.worker)
        if policy is None or "policy" not in record.arguments:
            return record
        return replace(record, arguments={**record.arguments, "policy": policy})

    def _policy(self, record: Asked) -> WorkerPolicy | None:
        found = self._policies.get(record.worker, record.arguments.get("policy"))
        return found if isinstance(found, WorkerPolicy) else None


def play(records: Iterable[Record], policies: Policies | None) -> tuple[Played, Played | None]:
    """What comes of a recording by its own rules, and by `policies` where those are given."""
    own = AsRecorded()
    other = None if policies is None else ByOtherRules(policies)
    for record in records:
        own.take(record)
        if other is not None:
            other.take(record, own.states)
    return own.played, None if other is None else other.played


def make(record: Asked, state: WorkerState) -> Outcome:
    """Make this call with that state."""
    function = CALLS.get(record.name)
    if function is None:
        raise UnreadableError(f"the recording has the unknown call {record.name!r}")
    try:
        return function(state, **record.arguments)
    except TypeError as error:
        raise UnreadableError(f"the call {record.name!r} is another one now: {error}") from None


def instant(record: Asked) -> float:
    """When this call was made."""
    now = record.arguments.get("now")
    return now if isinstance(now, float) else 0.0


def _wall(head: Head, now: float) -> float:
    """Seconds since 1970 at `now`, which may lie a moment before the head was written."""
    return head.wall + elapsed(head.monotonic, now) - elapsed(now, head.monotonic)


def _told(events: Iterable[Event]) -> str:
    return "; ".join(f"{event.kind.value}: {event.sentence}" for event in events) or "nothing"


def _differing(mine: WorkerState, told: WorkerState) -> str:
    names = [name for name in WorkerState.__slots__ if getattr(mine, name) != getattr(told, name)]
    return f"its state is recorded with another {' and '.join(names)}"
