"""When the kernel's facts of a worker are to be read: only while it is late, or about to be.

Two readings just before a deadline let the very first word on it say why; two before the end of a
window do the same for its verdict; in between one now and then is enough.
"""

from __future__ import annotations

from collections.abc import Iterable

from stepwarden.core.clocks import RunningClock
from stepwarden.core.deadline import Deadline, elapsed
from stepwarden.core.verdict import Suspicion

AHEAD_SECONDS = 2.5
"""So long before a deadline, and before a verdict, facts are read closely."""

CLOSE_SECONDS, LEAST_SECONDS = 0.9, 0.45
"""Then they are this old at most, or a sixth of a short window."""

REST_SECONDS = 5.0
"""So often while it is late, otherwise."""


def facts_due(
    clocks: Iterable[RunningClock],
    suspicions: Iterable[Suspicion],
    window: float,
    asked: float | None,
    now: float,
) -> bool:
    """Whether to read now; `asked`: when that was begun last, None where it never was."""
    age = None if asked is None else elapsed(asked, now)
    close = min(CLOSE_SECONDS, max(LEAST_SECONDS, window / 6.0))
    if age is not None and age < close:
        return False
    late = [clock for clock in clocks if soon(clock, now)]
    if not late:
        return False
    if age is None or age >= REST_SECONDS:
        return True
    known = list(suspicions)
    if any(not clock.deadline.passed(now) for clock in late) or not known:
        return True
    return any(_near(suspicion, now) for suspicion in known)


def soon(clock: RunningClock, now: float) -> bool:
    """Whether the deadline of this clock has passed, or is about to."""
    left = clock.deadline.remaining(now)
    return left is not None and left <= min(AHEAD_SECONDS, clock.budget / 2.0)


def _near(suspicion: Suspicion, now: float) -> bool:
    """It has just been opened, or its verdict is near."""
    left = Deadline(suspicion.window_ends).remaining(now)
    young = elapsed(suspicion.opened_at, now) <= AHEAD_SECONDS
    return young or (left is not None and left <= AHEAD_SECONDS)
