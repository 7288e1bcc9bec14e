"""What beats say of one rank: which are believed, and where their stamps lie on our clock.

Rules:

- One process of a rank has one session; within it only a beat with a higher `seq` is believed.
  Late, duplicate and out-of-order ones change nothing but a counter.
- A younger process (start time, then pid) of the same rank starts a new session; an older one is
  refused, unless the present process said bye or nobody knows the start times.
- Stamps of an agent on our own clock are taken as they are. Of any other clock only ages are used,
  placed at receipt. A stamp ahead of now or before the spawn is clamped and counted.
- The shape and the begin of a step are those of the beat that first told of it: a later beat never
  re-times a running step (a foreign clock may only move its begin back, towards the true one).
- A batch below 1 is unknown, not zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from stepwarden.core.deadline import ago, elapsed
from stepwarden.core.evidence import CpuSample, Lease, ProcessId, Step, Work

LATE = "late, duplicate or out of order"
OLDER_PROCESS = "sent by an older process of this rank"

MAX_LEASE_SECONDS = 1e9
"""A longer lease is read as this; the policy's cap is far below."""


@dataclass(frozen=True, slots=True)
class OpenStepFacts:
    """The oldest open step as a beat tells it; `begin` in seconds on the agent's clock."""

    number: int
    begin: float
    num_seqs: int = 0
    num_tokens: int = 0
    phase: str = "unknown"


@dataclass(frozen=True, slots=True)
class LeaseFacts:
    """A held lease as a beat tells it; `begin` in seconds on the agent's clock."""

    name: str
    begin: float
    seconds: float


@dataclass(frozen=True, slots=True)
class WorkFacts:
    """An engine core's queue as a beat tells it; instants in seconds on the agent's clock."""

    unfinished: int
    since: float
    loop_turns: int
    loop_at: float


@dataclass(frozen=True, slots=True)
class BeatFacts:
    """One beat, decoded and within bounds, but not yet believed.

    `own_clock`: boot id and time namespace of the agent are ours, so that its stamps are instants
    of our own clock. `now` and `phase_since` are seconds on the agent's clock. `pid` counts in the
    agent's own pid namespace. None means that the agent could not say.
    """

    rank: str
    seq: int
    pid: int
    start_ticks: int
    now: float
    own_clock: bool
    phase: str = "unknown"
    phase_since: float = 0.0
    oldest: OpenStepFacts | None = None
    in_flight: int = 0
    steps_begun: int = 0
    steps_ended: int = 0
    cpu_seconds: float | None = None
    rss_bytes: int | None = None
    lease: LeaseFacts | None = None
    work: WorkFacts | None = None
    bye: bool = False
    page: str = ""
    agent_version: str = ""
    detail: str = ""
    engine: str = ""
    engine_version: str = ""
    model: str = ""
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class RankBeats:
    """What the believed beats of one rank add up to. All instants on our own clock.

    `process` carries the pid of the agent's own pid namespace. `cpu_seconds` was true at
    `beat_at`. `refused` and `clamped` count over the whole life of the rank. `lease` keeps the
    last one after it was given back, with its `end`. `last` is the newest believed beat.
    """

    process: ProcessId
    attached_at: float
    beat_at: float
    phase: str
    phase_since: float
    step: Step | None
    lease: Lease | None
    work: Work | None
    steps_begun: int
    steps_ended: int
    cpu_seconds: float | None
    bye: bool
    last: BeatFacts
    sessions: int = 1
    refused: int = 0
    clamped: int = 0

    @property
    def steps(self) -> tuple[Step, ...]:
        """The oldest open step as `RankEvidence.steps` wants it."""
        return () if self.step is None else (self.step,)

    def cpu_sample(self, process: ProcessId | None = None) -> CpuSample | None:
        """CPU seconds at receipt; `process` names it in our own pid namespace where known."""
        if self.cpu_seconds is None:
            return None
        return CpuSample(self.beat_at, {process or self.process: self.cpu_seconds})


def accept(
    previous: RankBeats | None, beat: BeatFacts, now: float, spawned: float = -math.inf
) -> tuple[RankBeats, str]:
    """Take one beat that arrived at `now`; returns the new state and "" or why it was refused.

    `spawned`: when the incarnation was started; none of its stamps can lie before.
    A first beat is always believed.
    """
    process = ProcessId(beat.pid, beat.start_ticks)
    if previous is None:
        return _believe(None, None, beat, now, spawned), ""
    reason = _refusal(previous, process, beat)
    if reason:
        return replace(previous, refused=previous.refused + 1), reason
    same = previous if previous.process == process else None
    return _believe(previous, same, beat, now, spawned), ""


def _refusal(previous: RankBeats, process: ProcessId, beat: BeatFacts) -> str:
    present = previous.process
    if process == present:
        return LATE if beat.seq <= previous.last.seq else ""
    comparable = bool(process.start_ticks and present.start_ticks)
    older = (process.start_ticks, process.pid) < (present.start_ticks, present.pid)
    return OLDER_PROCESS if comparable and older and not previous.bye else ""


class _Placer:
    """Puts the stamps of one beat on our clock and counts those that had to be clamped."""

    __slots__ = ("_floor", "_now", "_theirs", "clamped")

    def __init__(self, beat: BeatFacts, now: float, spawned: float) -> None:
        self._now = now
        self._floor = min(spawned, now)
        self._theirs = None if beat.own_clock else beat.now
        self.clamped = 0

    def place(self, stamp: float) -> float:
        """The instant of a stamp; one that was never set (0) is now."""
        latest = self._now if self._theirs is None else self._theirs
        if not 0.0 < stamp <= latest:
            self.clamped += 1
            return self._now
        instant = stamp if self._theirs is None else ago(elapsed(stamp, latest), self._now)
        if instant < self._floor:
            self.clamped += 1
            return self._floor
        return instant


def _believe(
    before: RankBeats | None,
    same: RankBeats | None,
    beat: BeatFacts,
    now: float,
    spawned: float,
) -> RankBeats:
    placer = _Placer(beat, now, spawned)
    return RankBeats(
        process=ProcessId(beat.pid, beat.start_ticks),
        attached_at=now if same is None else same.attached_at,
        beat_at=now,
        phase=beat.phase,
        phase_since=_phase_since(same, beat, placer, now),
        step=_step(same, beat, placer),
        lease=_lease(same, beat, placer, now),
        work=_work(same, beat, placer, now),
        steps_begun=max(beat.steps_begun, 0 if same is None else same.steps_begun),
        steps_ended=max(beat.steps_ended, 0 if same is None else same.steps_ended),
        cpu_seconds=_finite(beat.cpu_seconds),
        bye=beat.bye,
        last=beat,
        sessions=1 if before is None else before.sessions + (same is None),
        refused=0 if before is None else before.refused,
        clamped=placer.clamped + (0 if before is None else before.clamped),
    )


def _phase_since(same: RankBeats | None, beat: BeatFacts, placer: _Placer, now: float) -> float:
    if same and same.phase == beat.phase and same.last.phase_since == beat.phase_since:
        return same.phase_since
    return placer.place(beat.phase_since) if beat.phase_since > 0.0 else now


def _step(same: RankBeats | None, beat: BeatFacts, placer: _Placer) -> Step | None:
    facts = beat.oldest
    if facts is None:
        return None
    known = None if same is None else same.step
    if known is not None and known.number == facts.number:
        # The first word on a step stands. Later beats of a foreign clock can only show that the
        # first one was long under way, that is, that the step began earlier.
        if beat.own_clock or facts.begin <= 0.0:
            return known
        return replace(known, begin=min(known.begin, placer.place(facts.begin)))
    return Step(
        number=facts.number,
        begin=placer.place(facts.begin),
        num_seqs=_count(facts.num_seqs),
        num_tokens=_count(facts.num_tokens),
        phase=facts.phase,
    )


def _lease(same: RankBeats | None, beat: BeatFacts, placer: _Placer, now: float) -> Lease | None:
    facts = beat.lease
    known = None if same is None else same.lease
    if facts is None or not facts.seconds > 0.0:
        held = known is not None and known.end is None
        return replace(known, end=now) if held and known is not None else known
    told = None if same is None else same.last.lease
    begin = placer.place(facts.begin)
    if known is not None and told is not None and told.begin == facts.begin:
        begin = min(begin, known.begin)
    return Lease(facts.name, begin, min(facts.seconds, MAX_LEASE_SECONDS))


def _work(same: RankBeats | None, beat: BeatFacts, placer: _Placer, now: float) -> Work | None:
    facts = beat.work
    if facts is None or facts.unfinished < 0:
        return None
    since = placer.place(facts.since) if facts.unfinished else now
    told = None if same is None else same.last.work
    if same and same.work and told and told.unfinished and told.since == facts.since:
        since = min(since, same.work.since)
    loop_at = placer.place(facts.loop_at) if facts.loop_at > 0.0 else now
    return Work(facts.unfinished, since, facts.loop_turns, loop_at)


def _count(number: int) -> int | None:
    return number if number >= 1 else None


def _finite(seconds: float | None) -> float | None:
    usable = seconds is not None and math.isfinite(seconds) and seconds >= 0.0
    return seconds if usable else None
