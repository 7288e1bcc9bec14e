"""How often the kernel's facts may be read in all, so that a bad day costs the judge no time.

When hundreds of ranks are late together their facts would be read without a pause, in threads that
take the interpreter lock from the loop. So readings take a small share of the time, and whoever
has waited longest comes first.
"""

from __future__ import annotations

from stepwarden.core.deadline import Deadline, elapsed

MOST_AT_ONCE = 2
"""One that hangs until its limit leaves room for the others."""

PAUSE_SHARE = 9.0
"""After a reading nothing is read for so many times its length: a tenth of the time in all."""

LONGEST_PAUSE = 2.0
"""One that hangs costs no time of ours, so it need not be made up for whole."""

FORGOTTEN_SECONDS = 2.0
"""Who has not asked again for so long wants no reading any more; the loop looks each second."""


class FactPace:
    """Says whose turn it is. All instants in monotonic seconds."""

    def __init__(self) -> None:
        self._running = 0
        self._free_at = Deadline(0.0)
        self._waiting: dict[str, float] = {}

    def may_begin(self, worker: str, now: float) -> bool:
        """Whether a reading of this worker begins now; `ended` is to be called then."""
        self._waiting[worker] = now  # keeps its place where it has one
        while self._waiting:
            first = next(iter(self._waiting))
            if elapsed(self._waiting[first], now) < FORGOTTEN_SECONDS:
                break
            del self._waiting[first]
        busy = self._running >= MOST_AT_ONCE or not self._free_at.passed(now)
        if busy or next(iter(self._waiting)) != worker:
            return False
        del self._waiting[worker]
        self._running += 1
        return True

    def ended(self, began: float, now: float) -> None:
        """A reading is over, or is not waited for any more."""
        self._running -= 1
        pause = Deadline.after(now, min(PAUSE_SHARE * elapsed(began, now), LONGEST_PAUSE))
        self._free_at = pause.not_before(self._free_at.at or 0.0)
