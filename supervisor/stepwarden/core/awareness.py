"""The daemon doubts itself first: time in which its own loop stood still is nobody's fault.

A loop that was stopped, starved, or paused with its whole machine wakes late. The time by which
it is late is kept as a `Pause` and does not count on any clock that was running meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepwarden.core.deadline import elapsed

LATE_WAKE_SECONDS = 0.5
"""A wake-up later than this is a pause of ours. Below it lies ordinary scheduling noise (measured
up to 0.3 s on two busy cores); above it a worker could be blamed for what we did not see."""

KEPT_PAUSES = 256
"""Pauses are remembered for as long as clocks can run; the oldest beyond this are joined."""


@dataclass(frozen=True, slots=True)
class Pause:
    """From `begin` to `end` (monotonic seconds) the loop did not run."""

    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Awareness:
    """What the loop knows about its own absences."""

    pauses: tuple[Pause, ...] = ()

    def woke(self, expected: float, now: float) -> Awareness:
        """Note a wake-up that was due at `expected`; a new `Awareness` when it came too late."""
        if elapsed(expected, now) <= LATE_WAKE_SECONDS:
            return self
        kept = (*self.pauses, Pause(expected, now))
        if len(kept) > KEPT_PAUSES:
            # Joining the two oldest excuses the time between them too: lenient, and bounded.
            kept = (Pause(kept[0].begin, kept[1].end), *kept[2:])
        return Awareness(kept)

    def lost(self, since: float, now: float) -> float:
        """Seconds between `since` and `now` in which the loop did not run."""
        if not self.pauses or self.pauses[-1].end <= since:
            return 0.0  # as a rule, and asked of each clock in each turn
        return sum(elapsed(max(since, p.begin), min(now, p.end)) for p in self.pauses)

    def forget_before(self, instant: float) -> Awareness:
        """Drop pauses that ended before `instant`: no clock that runs now can overlap them."""
        kept = tuple(p for p in self.pauses if p.end >= instant)
        return self if len(kept) == len(self.pauses) else Awareness(kept)
