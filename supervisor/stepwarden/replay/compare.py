"""Which alarms, deaths and restarts come of a recording, and what other rules make of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from stepwarden.core.deadline import apart
from stepwarden.core.event import Event, Kind
from stepwarden.core.lifecycle import LIVE, State
from stepwarden.replay.play import Happened

SAME_SECONDS = 0.5
"""Two that lie no further apart happened at the same time: the loop looks once a second."""


class Sort(StrEnum):
    """What an operator asks about."""

    ALARM = "alarm"
    DEATH = "death"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Mark:
    """One alarm, death or restart. `at`, `wall` as of what happened."""

    at: float
    sort: Sort
    worker: str
    life: str
    cause: str
    rank: str
    step: int | None
    sentence: str
    wall: float | None = None

    @property
    def same_thing(self) -> tuple[object, ...]:
        """Equal for what is the same alarm, death or restart by two rules, whenever it came."""
        if self.sort is Sort.ALARM:
            return self.sort, self.worker, self.life, self.cause, self.rank, self.step
        return self.sort, self.worker, self.life


@dataclass(frozen=True, slots=True)
class Difference:
    """`before` None: it is new. `after` None: it is no more. Both: it comes at another time."""

    before: Mark | None
    after: Mark | None

    @property
    def at(self) -> float:
        """When it is to be told: the earlier of the two."""
        return min(mark.at for mark in (self.before, self.after) if mark is not None)


def marks(happened: Iterable[Happened]) -> list[Mark]:
    """The alarms, deaths and restarts among what happened, in their order."""
    return [mark for told in happened if (mark := _mark(told)) is not None]


def differences(before: Iterable[Mark], after: Iterable[Mark]) -> list[Difference]:
    """What is new, what is no more, and what comes at another time; by time."""
    old, new = _by_thing(before), _by_thing(after)
    return sorted(_differing(old, new), key=lambda found: found.at)


def _differing(
    old: dict[tuple[object, ...], list[Mark]], new: dict[tuple[object, ...], list[Mark]]
) -> Iterator[Difference]:
    for thing in {**old, **new}:
        were, are = old.get(thing, []), new.get(thing, [])
        for one, other in zip(were, are, strict=False):
            if apart(one.at, other.at) > SAME_SECONDS:
                yield Difference(one, other)
        yield from (Difference(mark, None) for mark in were[len(are) :])
        yield from (Difference(None, mark) for mark in are[len(were) :])


def _by_thing(found: Iterable[Mark]) -> dict[tuple[object, ...], list[Mark]]:
    grouped: dict[tuple[object, ...], list[Mark]] = {}
    for mark in found:
        grouped.setdefault(mark.same_thing, []).append(mark)
    return grouped


def _mark(told: Happened) -> Mark | None:
    event = told.event
    sort = _sort(event)
    if sort is None:
        return None
    step = event.data.get("step")
    return Mark(
        told.at,
        sort,
        event.worker,
        event.incarnation,
        event.cause,
        event.rank,
        step if isinstance(step, int) else None,
        event.sentence,
        told.wall,
    )


def _sort(event: Event) -> Sort | None:
    if event.kind is Kind.SUSPICION:
        return Sort.ALARM
    if event.kind is not Kind.TRANSITION:
        return None
    if event.to_state == State.UNHEALTHY:
        return Sort.ALARM
    if event.to_state == State.DEAD:
        return Sort.DEATH
    began = event.to_state == State.STARTING and event.from_state not in LIVE
    again = event.incarnation not in {"", "1"}
    return Sort.RESTART if began and again else None
