"""Looks once a second at what workers lose to quotas and stalls, while something of theirs runs.

Only of those with a clock older than a moment: a step that ends soon needs no allowance, and a
worker without one costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from stepwarden.core.deadline import elapsed
from stepwarden.core.facts import NO_PRESSURE, Pressure
from stepwarden.core.losses import lost_between
from stepwarden.daemon.life import Life
from stepwarden.daemon.starved_memory import StarvedMemory
from stepwarden.daemon.unit import Unit
from stepwarden.edge.cgroup_mounts import lines
from stepwarden.edge.pressure import group_pressure, host_pressure, places_of

LOOK_SECONDS = 1.0
OLD_SECONDS = 1.5
"""Clocks that are younger are not asked for; a silence of beats is never so long as a rule."""

STALE_SECONDS = 3.0
"""What was read so long ago or longer says nothing of the time since."""


@dataclass(slots=True)
class Starving:
    """Reads for all workers; the host is read once for all that are looked at together."""

    read_host: Callable[[], Pressure] = host_pressure
    _host_at: float | None = None
    _host: Pressure = field(default=NO_PRESSURE)

    def look(self, unit: Unit, life: Life, now: float, *, late: bool = False) -> bool:
        """Read what this life has lost; True where that is more than was known.

        `late`: a deadline has passed, so that it must be known up to now.
        """
        memory = life.starving
        if not _due(unit, memory, now, late):
            return False
        lost = 0.0
        worker, host = self._of(life, memory), self._of_host(now)
        known = memory.at is not None and elapsed(memory.at, now) <= STALE_SECONDS
        if known and memory.at is not None:
            lost = lost_between(memory.worker, worker, (memory.host, host))
            memory.starved = memory.starved.noted(memory.at, now, lost)
        memory.at, memory.worker, memory.host = now, worker, host
        return lost > 0.0

    def _of(self, life: Life, memory: StarvedMemory) -> Pressure:
        if life.main is None:
            return NO_PRESSURE
        groups = tuple(lines(f"/proc/{life.main.pid}/cgroup"))
        if memory.places is None or groups != memory.groups:  # somebody may move it
            memory.places, memory.groups = places_of(life.main.pid), groups
        return group_pressure(memory.places)

    def _of_host(self, now: float) -> Pressure:
        if self._host_at != now:
            self._host_at, self._host = now, self.read_host()
        return self._host


def _due(unit: Unit, memory: StarvedMemory, now: float, late: bool) -> bool:
    if memory.at == now:
        return False
    if late:
        # Known up to this instant: what came to light later would take an alarm back.
        return True
    if memory.at is not None and elapsed(memory.at, now) < LOOK_SECONDS / 2:
        return False
    return any(elapsed(clock.began, now) >= OLD_SECONDS for clock in unit.clocks)
