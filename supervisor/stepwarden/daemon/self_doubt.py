"""What makes the daemon doubt itself: its own lag, a host that stalls, silence all around."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stepwarden.core.awareness import Doubts
from stepwarden.core.clocks import Cause
from stepwarden.core.deadline import elapsed
from stepwarden.core.facts import Pressure, fully_stalled
from stepwarden.core.governor import FEWEST_PARTIES
from stepwarden.core.lifecycle import LIVE
from stepwarden.core.policy import AGENT_NONE
from stepwarden.daemon.unit import Unit

SILENT_SHARE = 0.5
"""A worker is silent here when it has used this share of its heartbeat timeout."""

MEMORY_SHARE = 0.1
IO_SHARE = 0.5
"""The host is under pressure when all that could run waited for memory, or for disks, for so large
a share of the time. CPU is left out: on a host that computes with its CPUs somebody always waits,
and where that hurts us, our own loop is late."""


class SelfDoubt:
    """Gathers `Doubts` between two looks. `read`: the pressure of the host so far."""

    def __init__(self, read: Callable[[], Pressure]) -> None:
        self._read = read
        self._before: tuple[Pressure, float] | None = None
        self._lag = 0.0

    def woke(self, due: float, now: float) -> None:
        """The loop was due then and woke now."""
        self._lag = max(self._lag, elapsed(due, now))

    def doubts(self, units: Iterable[Unit], now: float) -> Doubts:
        """What was seen since the last call."""
        lag, self._lag = self._lag, 0.0
        return Doubts(lag, self._pressed(now), _silence(units, now))

    def _pressed(self, now: float) -> bool:
        before, after = self._before, self._read()
        self._before = after, now
        if before is None:
            return False
        span = elapsed(before[1], now)
        memory = fully_stalled(before[0].memory, after.memory)
        io = fully_stalled(before[0].io, after.io)
        return span > 0.0 and (memory >= MEMORY_SHARE * span or io >= IO_SHARE * span)


def _silence(units: Iterable[Unit], now: float) -> bool:
    """Whether most of several workers with agents have given no sign of life for a while."""
    there = silent = 0
    for unit in units:
        if unit.state.lifecycle not in LIVE or unit.policy.agent == AGENT_NONE:
            continue
        there += 1
        beats = (clock for clock in unit.clocks if clock.cause is Cause.HEARTBEAT)
        silent += any(elapsed(c.began, now) >= SILENT_SHARE * c.budget for c in beats)
    return there >= FEWEST_PARTIES and 2 * silent > there
