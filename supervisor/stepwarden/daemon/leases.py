"""Which leases a rank has had: page and beats show one at a time, and a clock may see several.

A lease is known by its begin on the agent's own clock: page and beat carry the same stamp. What is
shown no more has ended, unless it is shown again: the agent shows the one that runs out last.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from stepwarden.core.deadline import apart
from stepwarden.core.evidence import Lease

KEPT_LEASES = 16
"""So many of one rank are remembered, the newest; older ones extend no deadline any more."""

_SAME_STAMP = 1e-6  # seconds; page and beat carry the same nanoseconds, rounded differently


@dataclass(frozen=True, slots=True)
class NotedLease:
    """A lease on our own clock, and its begin in seconds on the clock of the agent."""

    stamp: float
    lease: Lease


Noted = tuple[NotedLease, ...]


def note(noted: Noted, shown: NotedLease | None, now: float) -> Noted:
    """Take in which lease is shown at `now`, if any: the oldest first, at most one without an end.

    A lease that is known keeps its first begin (a foreign clock can only be placed late) and its
    name (the page has none).
    """
    known = None if shown is None else _find(noted, shown.stamp)
    after = [one if one is known else _ended(one, now) for one in noted]
    if shown is not None and known is None:
        after.append(shown)
    elif shown is not None and known is not None:
        lease = replace(
            shown.lease,
            name=shown.lease.name or known.lease.name,
            begin=min(shown.lease.begin, known.lease.begin),
        )
        after[after.index(known)] = NotedLease(known.stamp, lease)
    return tuple(after[-KEPT_LEASES:])


def note_name(noted: Noted, told: NotedLease, now: float) -> Noted:
    """Take in what a beat tells of a lease while the page, which is newer, says which is held."""
    known = _find(noted, told.stamp)
    if known is None:
        return note(noted, told, now)  # too short for the page to be read meanwhile
    named = replace(known, lease=replace(known.lease, name=told.lease.name))
    return tuple(named if one is known else one for one in noted)


def leases_of(noted: Iterable[NotedLease]) -> tuple[Lease, ...]:
    """The leases themselves."""
    return tuple(one.lease for one in noted)


def _find(noted: Noted, stamp: float) -> NotedLease | None:
    return next((one for one in noted if apart(one.stamp, stamp) < _SAME_STAMP), None)


def _ended(one: NotedLease, now: float) -> NotedLease:
    return one if one.lease.end is not None else replace(one, lease=replace(one.lease, end=now))
