"""What the evidence means when a deadline has passed: slow, or dead?

A passed deadline opens a suspicion of (rank, cause). It has a retry window, over which the CPU
time of that rank (its process and its own descendants) is measured. At the end of the window the
answer is one of two: another window (working, or unknown), or dead (measured not working, or the
hard cap of its cause is reached). High CPU is no proof of progress and low CPU none of death: CPU
only decides whether one more window is granted, and never beyond the hard cap.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from stepwarden.core.clocks import Cause, RunningClock
from stepwarden.core.deadline import Deadline, elapsed
from stepwarden.core.evidence import CpuSample
from stepwarden.core.facts import RankFacts
from stepwarden.core.finding import Finding
from stepwarden.core.stacks import StackDiff

NOT_RUNNING_STATES = frozenset({"T", "Z", "X"})
"""Process states that cannot compute: stopped, zombie, dead. Not "t": a profiler that looks at a
working process holds it there for a moment, and its CPU says the rest."""

MEASURED_SHARE = 0.5
"""Two samples must span at least this part of a window to speak for it. CPU is counted in ticks
of 10 ms, so samples that lie close together show nothing at all of a process that works."""


class Activity(StrEnum):
    """What a rank was seen to do over a window."""

    WORKING = "working"
    NOT_WORKING = "not working"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Measurement:
    """CPU over a window: `percent` of one core (may exceed 100), None where unknown."""

    activity: Activity
    percent: float | None
    seconds: float
    state: str | None = None


def measure(
    before: CpuSample | None,
    after: CpuSample | None,
    busy_cpu: float,
    *,
    lost: float = 0.0,
    at_least: float = 0.0,
) -> Measurement:
    """Compare two samples of one rank; `busy_cpu` is in percent of one core.

    A missing sample, two of the same instant, or two less than `at_least` seconds apart give
    UNKNOWN: the first sample of anything says nothing about what it does. `lost`: seconds between
    them in which our own host may have stood still, and the rank with it.
    """
    state = after.state if after is not None else None
    low, high, seconds = _percent_bounds(before, after, lost)
    if state in NOT_RUNNING_STATES:
        return Measurement(Activity.NOT_WORKING, low, seconds, state)
    if seconds < at_least:
        return Measurement(Activity.UNKNOWN, None, seconds, state)
    if low is not None and low > busy_cpu:
        return Measurement(Activity.WORKING, low, seconds, state)
    if high is not None and high <= busy_cpu:
        return Measurement(Activity.NOT_WORKING, low, seconds, state)
    return Measurement(Activity.UNKNOWN, low, seconds, state)


def _percent_bounds(
    before: CpuSample | None, after: CpuSample | None, lost: float
) -> tuple[float | None, float | None, float]:
    """Percent of a core at least and at most, and the seconds between the samples.

    The two differ where a process vanished (if its parent reaped it, the CPU time that it had
    used before the window came back in the parent's total and must not count again), and where
    time was lost: then nobody knows whether the rank ran meanwhile.
    """
    if before is None or after is None:
        return None, None, 0.0
    seconds = elapsed(before.at, after.at)
    if seconds <= 0.0:
        return None, None, 0.0
    gained = sum(elapsed(before.seconds.get(p, 0.0), total) for p, total in after.seconds.items())
    vanished = sum(total for p, total in before.seconds.items() if p not in after.seconds)
    ran = max(elapsed(lost, seconds), 0.01)
    return 100.0 * elapsed(vanished, gained) / seconds, 100.0 * gained / ran, seconds


class Ruling(StrEnum):
    """What to do about one suspicion now."""

    WAIT = "WAIT"  # its window is not over
    UNHEALTHY_RETRY = "UNHEALTHY_RETRY"  # another window
    DEAD = "DEAD"


@dataclass(frozen=True, slots=True)
class Suspicion:
    """One passed deadline that has not been explained away.

    `opened_at`, `window_ends`: the present retry window. `whole_until`: no verdict before it,
    whatever the hard cap says, so that a worker that was HEALTHY gets its first window whole.
    `would_be_dead`: it has been condemned and is only observed.
    `facts`: what the kernel said of it when its window began. `finding`: why it is late, as far as
    is known; it explains, and no ruling rests on it. `starved_before`: by how much its
    clock was pushed out for starved time when the window began; what is added since makes the
    window longer.
    """

    clock: RunningClock
    opened_at: float
    window_ends: float
    baseline: CpuSample | None
    whole_until: float
    windows: int = 1  # retry windows granted so far, this one included
    would_be_dead: bool = False
    facts: RankFacts | None = None
    finding: Finding | None = None
    starved_before: float = 0.0
    stacks: StackDiff | None = None  # what two looks at its stacks came to; None: none yet

    @property
    def key(self) -> tuple[str, Cause, int]:
        """Same key, same suspicion."""
        return self.clock.key

    def due(self, lost: float, longer: float = 0.0) -> Deadline:
        """When it is judged: at the end of its window, or at its hard cap where that is earlier.

        `lost`: our own pauses since the window began; `longer`: what else makes the window longer,
        and never the hard cap. Both in seconds.
        """
        ends = self.window_ends + lost + longer + elapsed(self.starved_before, self.clock.starved)
        return Deadline(min(ends, max(self.clock.cap_at, self.whole_until + lost)))

    def held_back(self, sample: CpuSample | None, window: float, now: float) -> Suspicion:
        """Another whole window, also past its hard cap, because its death is held up."""
        ends = now + window
        return replace(
            self,
            window_ends=ends,
            whole_until=ends,
            opened_at=now,
            baseline=sample,
            windows=self.windows + 1,
            starved_before=self.clock.starved,
        )


@dataclass(frozen=True, slots=True)
class Judgement:
    """A ruling on one suspicion, with what it rests on. `longer`: as in `Suspicion.due`."""

    suspicion: Suspicion
    ruling: Ruling
    measurement: Measurement | None = None
    capped: bool = False
    longer: float = 0.0


def open_suspicion(
    clock: RunningClock,
    window: float,
    sample: CpuSample | None,
    now: float,
    whole_until: float | None = None,
) -> Suspicion:
    """The deadline of `clock` has passed: start its first retry window.

    `whole_until`: set where the same lateness has had its first window under another name.
    """
    whole = now + window if whole_until is None else whole_until
    # Where a rank that does not work has more time, its first window reaches so far.
    ends = max(now + window, whole, clock.idle_at or now)
    return Suspicion(clock, now, ends, sample, whole, starved_before=clock.starved)


def judge(
    suspicion: Suspicion,
    sample: CpuSample | None,
    now: float,
    *,
    window: float,
    busy_cpu: float,
    lost: float = 0.0,
    longer: float = 0.0,
    starved: float = 0.0,
) -> Judgement:
    """Rule on a suspicion at `now`; `lost` and `longer` as in `due`, in seconds.

    `starved`: all the time of this window in which it could not have run, for the same reason as
    in `measure`.
    """
    if not suspicion.due(lost, longer).passed(now):
        return Judgement(suspicion, Ruling.WAIT)
    span = elapsed(suspicion.opened_at, suspicion.window_ends)
    measurement = measure(
        suspicion.baseline,
        sample,
        busy_cpu,
        lost=lost + starved,
        at_least=MEASURED_SHARE * span,
    )
    capped = Deadline(suspicion.clock.cap_at).passed(now)
    if capped or measurement.activity is Activity.NOT_WORKING:
        return Judgement(suspicion, Ruling.DEAD, measurement, capped, longer)
    renewed = replace(
        suspicion,
        window_ends=now + window,
        opened_at=now,
        baseline=sample,
        windows=suspicion.windows + 1,
        starved_before=suspicion.clock.starved,
    )
    return Judgement(renewed, Ruling.UNHEALTHY_RETRY, measurement, longer=longer)
