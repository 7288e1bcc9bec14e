"""Deadlines: the only place that subtracts times, so that what remains is never negative.

A deadline computed early and used late must give an immediate time-out. A negative number would
be read by many waiting layers as "wait without limit", which is how supervisors hang.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


def elapsed(since: float, now: float) -> float:
    """Seconds from `since` to `now`; 0.0 where `since` lies ahead."""
    return max(0.0, now - since)


def ago(seconds: float, now: float) -> float:
    """The instant that lies `seconds` before `now`; `now` itself for a negative age or NaN."""
    return now - seconds if seconds > 0.0 else now


def apart(one: float, other: float) -> float:
    """Seconds between two instants, whichever comes first."""
    return abs(one - other)


def clamp_timeout(seconds: float | None) -> float | None:
    """What a waiting layer may use as its timeout.

    None is the explicit choice to wait without limit and stays None, as does plus infinity, which
    says the same. Negative numbers and NaN become 0.0: an immediate time-out.
    """
    if seconds is None or seconds == math.inf:
        return None
    if math.isnan(seconds) or seconds < 0.0:
        return 0.0
    return seconds


@dataclass(frozen=True, slots=True)
class Deadline:
    """An instant on the monotonic clock, or `Deadline.never()`."""

    at: float | None

    @classmethod
    def never(cls) -> Deadline:
        """No limit, by explicit choice."""
        return cls(None)

    @classmethod
    def after(cls, now: float, seconds: float | None) -> Deadline:
        """`seconds` from `now`; None or infinity: never; negative or NaN: `now` itself."""
        timeout = clamp_timeout(seconds)
        return cls(None if timeout is None else now + timeout)

    def remaining(self, now: float) -> float | None:
        """Seconds left, never negative; None where there is no limit."""
        return None if self.at is None else max(0.0, self.at - now)

    def passed(self, now: float) -> bool:
        """True from the instant of the deadline on."""
        return self.at is not None and now >= self.at

    def not_before(self, instant: float) -> Deadline:
        """This deadline, or `instant` where that is later; never stays never."""
        return self if self.at is None else Deadline(max(self.at, instant))

    def later_than(self, other: Deadline) -> bool:
        """Whether it gives more time than `other`; never gives more than any instant."""
        if self.at is None or other.at is None:
            return other.at is not None
        return self.at > other.at


def earliest(*deadlines: Deadline) -> Deadline:
    """The one that comes first; never, where there is none."""
    instants = [deadline.at for deadline in deadlines if deadline.at is not None]
    return Deadline(min(instants)) if instants else Deadline.never()
