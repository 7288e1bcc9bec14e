"""What the kernel says of a rank's processes and of the pressure around them, at one instant.

Counters only: a rate is the difference of two readings. None means that nobody could read it,
which is never the same as zero. Times are in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stepwarden.core.deadline import elapsed

if TYPE_CHECKING:  # evidence holds facts
    from stepwarden.core.evidence import ProcessId

ASLEEP = frozenset("SI")
UNINTERRUPTIBLE = "D"
STOPPED = "T"


@dataclass(frozen=True, slots=True)
class ThreadFacts:
    """One thread. `state`: the letter of proc_pid_stat(5).

    `cpu`: its CPU time. `waited`: how long it was ready to run and got no CPU. `wchan`: the
    function of the kernel in which it sleeps. `minor_faults`, `major_faults`: pages that it
    touched first, and pages that had to be read from a disk.
    """

    tid: int
    name: str
    state: str
    cpu: float
    waited: float | None = None
    wchan: str | None = None
    minor_faults: int | None = None
    major_faults: int | None = None


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """One process; its first thread comes first in `threads`, which may leave out some of many.

    `read_bytes`, `written_bytes`: what went through read and write calls, a page cache or a
    socket included.
    """

    process: ProcessId
    name: str
    state: str
    cpu: float
    major_faults: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
    threads: tuple[ThreadFacts, ...] = ()
    threads_in_all: int = 1


@dataclass(frozen=True, slots=True)
class Stall:
    """Pressure stall information: how long some, and how long all, that wanted to run could not."""

    some: float
    full: float | None = None


@dataclass(frozen=True, slots=True)
class Throttling:
    """The counters of one control group's CPU quota.

    `seconds` is summed over the CPUs on which the group was held back.
    """

    periods: int
    throttled: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Pressure:
    """What a control group, or the host, has waited for so far.

    `quotas`: by the name of a group, the worker's own and those around it; None where no quota
    can be read, and always for the host.
    """

    cpu: Stall | None = None
    memory: Stall | None = None
    io: Stall | None = None
    quotas: Mapping[str, Throttling] | None = None


NO_PRESSURE = Pressure()


@dataclass(frozen=True, slots=True)
class RankFacts:
    """One reading of one rank: its own process first, then the descendants of that."""

    at: float
    processes: tuple[ProcessFacts, ...]
    worker: Pressure = NO_PRESSURE
    host: Pressure = NO_PRESSURE

    @property
    def main(self) -> ProcessFacts | None:
        """The rank's own process; None where it was not there."""
        return self.processes[0] if self.processes else None

    def threads(self) -> Iterator[tuple[ProcessFacts, ThreadFacts]]:
        """Every thread of every process that was read."""
        for process in self.processes:
            for thread in process.threads:
                yield process, thread


def throttled_between(before: Pressure, after: Pressure) -> Throttling | None:
    """What the group that was held back longest lost between two readings; None where unknown."""
    if before.quotas is None or after.quotas is None:
        return None
    lost = [
        Throttling(
            now.periods - was.periods, now.throttled - was.throttled, now.seconds - was.seconds
        )
        for name, now in after.quotas.items()
        if (was := before.quotas.get(name)) is not None and now.seconds >= was.seconds
    ]
    return max(lost, key=lambda each: each.seconds, default=None)


def stalled_between(before: Stall | None, after: Stall | None) -> Stall | None:
    """How much longer some and all were stalled at the later of two readings; None: unknown."""
    if before is None or after is None:
        return None
    full = None
    if before.full is not None and after.full is not None:
        full = elapsed(before.full, after.full)
    return Stall(elapsed(before.some, after.some), full)


def fully_stalled(before: Stall | None, after: Stall | None) -> float:
    """Seconds between two readings in which all stalled; 0.0 where nobody counts them."""
    between = stalled_between(before, after)
    return 0.0 if between is None or between.full is None else between.full
