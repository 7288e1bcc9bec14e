"""Whether the kernel has just killed somebody on this host because memory ran out.

Most control groups of workers have no memory controller that would count for them alone, but the
host's count tells a KILL out of nowhere from one of the kernel's.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from stepwarden.core.deadline import elapsed

RECENT_SECONDS = 10.0
"""A large process takes so long to come apart after the kernel has killed it."""

_VMSTAT = Path("/proc/vmstat")


class OomCount:
    """Follows the host's counter. `look` once a second; a fraction of a millisecond each."""

    def __init__(self, place: Path = _VMSTAT) -> None:
        self._place = place
        self._seen: list[tuple[float, int]] = []  # when each value was first seen

    def look(self, now: float) -> None:
        """Read the counter; what cannot be read changes nothing."""
        count = self._read()
        if count is None:
            return
        if not self._seen or count != self._seen[-1][1]:
            self._seen.append((now, count))
        while len(self._seen) > 1 and elapsed(self._seen[1][0], now) > RECENT_SECONDS:
            del self._seen[0]

    def recent(self, now: float) -> int:
        """How many kills were counted in the last seconds, as far as was looked."""
        self.look(now)
        return self._seen[-1][1] - self._seen[0][1] if self._seen else 0

    def _read(self) -> int | None:
        with suppress(OSError, ValueError):
            for line in self._place.read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return None
