"""What moved between two readings of one rank's facts: the rates that a diagnosis rests on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stepwarden.core.deadline import elapsed
from stepwarden.core.evidence import ProcessId
from stepwarden.core.facts import (
    RankFacts,
    Stall,
    ThreadFacts,
    Throttling,
    stalled_between,
    throttled_between,
)

LEAST_SECONDS = 0.4
"""Two readings that lie closer say nothing: CPU is counted in ticks of 10 ms."""

BUSY_SHARE = 0.25
"""A thread that used this share of a core counts as busy."""

Thread = tuple[ProcessId, int]


@dataclass(frozen=True, slots=True)
class ThreadMove:
    """One thread between two readings. Seconds of CPU, and of waiting for one (None: unknown)."""

    name: str
    tid: int
    state: str
    wchan: str | None
    cpu: float
    waited: float | None
    minor_faults: int


@dataclass(frozen=True, slots=True)
class Moves:
    """What moved in `seconds`. None: unknown.

    `cpu`: CPU seconds of the rank's tree. `threads`: those that were there both times, the one
    with the most CPU first. `io_bytes`: read and written. `stuck`: threads that were in state D
    both times. `throttled`: of its control group; `memory`, `host_memory`: stalls.
    """

    seconds: float
    cpu: float
    threads: tuple[ThreadMove, ...]
    io_bytes: int | None
    major_faults: int | None
    stuck: tuple[ThreadMove, ...]
    throttled: Throttling | None
    memory: Stall | None
    host_memory: Stall | None

    @property
    def percent(self) -> float:
        """CPU in percent of one core."""
        return 100.0 * self.cpu / self.seconds

    @property
    def busiest(self) -> ThreadMove | None:
        """The thread with the most CPU."""
        return self.threads[0] if self.threads else None

    @property
    def busy(self) -> int:
        """How many threads used a good part of a core."""
        return sum(thread.cpu >= BUSY_SHARE * self.seconds for thread in self.threads)


def moves_between(before: RankFacts | None, after: RankFacts | None) -> Moves | None:
    """None where a reading is missing, is of another process, or they lie too close together."""
    if before is None or after is None or before.main is None or after.main is None:
        return None
    seconds = elapsed(before.at, after.at)
    if seconds < LEAST_SECONDS or before.main.process != after.main.process:
        return None
    threads = _threads(before, after)
    return Moves(
        seconds=seconds,
        cpu=_cpu(before, after),
        threads=tuple(sorted(threads, key=lambda thread: -thread.cpu)),
        io_bytes=_grown(_io(before), _io(after)),
        major_faults=_grown(_faults(before), _faults(after)),
        stuck=_stuck(before, threads),
        throttled=throttled_between(before.worker, after.worker),
        memory=stalled_between(before.worker.memory, after.worker.memory),
        host_memory=stalled_between(before.host.memory, after.host.memory),
    )


def _by_id(facts: RankFacts) -> dict[Thread, ThreadFacts]:
    return {(process.process, thread.tid): thread for process, thread in facts.threads()}


def _threads(before: RankFacts, after: RankFacts) -> list[ThreadMove]:
    were = _by_id(before)
    return [
        _move(was, thread)
        for key, thread in _by_id(after).items()
        if (was := were.get(key)) is not None
    ]


def _move(was: ThreadFacts, now: ThreadFacts) -> ThreadMove:
    waited = None
    if was.waited is not None and now.waited is not None:
        waited = elapsed(was.waited, now.waited)
    minor = max(0, (now.minor_faults or 0) - (was.minor_faults or 0))
    return ThreadMove(
        now.name, now.tid, now.state, now.wchan, elapsed(was.cpu, now.cpu), waited, minor
    )


def _stuck(before: RankFacts, threads: Iterable[ThreadMove]) -> tuple[ThreadMove, ...]:
    were = {thread.tid for _, thread in before.threads() if thread.state == "D"}
    return tuple(each for each in threads if each.state == "D" and each.tid in were)


def _cpu(before: RankFacts, after: RankFacts) -> float:
    were = {process.process: process.cpu for process in before.processes}
    return sum(elapsed(were.get(each.process, 0.0), each.cpu) for each in after.processes)


Counts = dict[ProcessId, int]


def _io(facts: RankFacts) -> Counts:
    return {
        each.process: each.read_bytes + each.written_bytes
        for each in facts.processes
        if each.read_bytes is not None and each.written_bytes is not None
    }


def _faults(facts: RankFacts) -> Counts:
    return {e.process: e.major_faults for e in facts.processes if e.major_faults is not None}


def _grown(before: Counts, after: Counts) -> int | None:
    both = before.keys() & after.keys()
    if not both:
        return None
    return sum(max(0, after[process] - before[process]) for process in both)
