"""Time that a worker could not use: its quota was spent, or its host stalled.

Kept as marks of (instant, seconds lost until then) in the order of time, so that any clock can ask
for what was lost since it began. Between two marks the loss is spread evenly.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from stepwarden.core.deadline import elapsed

MOST_MARKS = 256
"""Beyond this each second one of the older half is dropped: coarser, and bounded."""


@dataclass(frozen=True, slots=True)
class Starved:
    """What one worker has lost so far; instants in monotonic seconds."""

    marks: tuple[tuple[float, float], ...] = ()

    def noted(self, since: float, now: float, lost: float) -> Starved:
        """Between `since` and `now`, `lost` seconds were lost, of at most all of that time."""
        lost = min(max(0.0, lost), elapsed(since, now))
        total = self.marks[-1][1] if self.marks else 0.0
        if lost == 0.0 and not self.marks:
            return self
        marks = self.marks
        if not marks or marks[-1][0] < since:
            marks = (*marks, (since, total))  # nothing is known to be lost while nobody looked
        marks = (*marks, (now, total + lost))
        if len(marks) > MOST_MARKS:
            half = len(marks) // 2
            marks = (*marks[:half:2], *marks[half:])
        return Starved(marks)

    def lost(self, since: float, now: float) -> float:
        """Seconds lost between two instants."""
        if not self.marks or self.marks[-1][0] <= since:
            return 0.0
        return elapsed(self._total(since), self._total(now))

    def _total(self, instant: float) -> float:
        after = bisect_right(self.marks, (instant, float("inf")))
        if after == 0:
            return 0.0
        if after == len(self.marks):
            return self.marks[-1][1]
        (begin, had), (end, has) = self.marks[after - 1], self.marks[after]
        share = elapsed(begin, instant) / elapsed(begin, end) if end > begin else 1.0
        return had + share * elapsed(had, has)


NOT_STARVED = Starved()
