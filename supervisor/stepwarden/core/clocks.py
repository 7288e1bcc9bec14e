"""Which clocks run for a worker now, and when each of them ends.

A clock belongs to a subject (a rank, or the worker as a whole) and a cause. It starts at a real
beginning (step begin, spawn, last sign of life), never at a message or an enqueue. Three things
push its end out, each by a stated amount: pauses of our own loop, the leases of its rank, all of
them together up to the cap, and time that the worker could not use (its quota was spent, its host
stalled), one budget of it at most. The last pushes no hard cap.

    startup    from spawn (or a rank's attach) until it is past loading and warm-up
    step       from the begin of the oldest open step of a rank that has come up
    heartbeat  from the last beat or move of the page; an open step on a readable page stands in
               for beats, because an interpreter lock held through a long step silences them and
               the step has its own deadline
    lease      from its begin, for a lease that is still held, while a rank starts too
    scheduler  requests wait in the engine core and no step begins on any rank
    progress   the worker's own counter stands still while its gauge says that work is there
    drain      from the instant a rank says that it is draining; meanwhile the deadlines of its
               steps are pushed out, by the drain budget at most
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum

from stepwarden.core.awareness import Awareness
from stepwarden.core.deadline import Deadline, elapsed
from stepwarden.core.evidence import Lease, RankEvidence, Step, WorkerEvidence
from stepwarden.core.policy import AGENT_REQUIRED, LEARN_ON, WorkerPolicy
from stepwarden.core.starved import Starved
from stepwarden.core.step_bounds import bounds_of, configured
from stepwarden.core.usual import Usual


class Cause(StrEnum):
    """Why a worker is not HEALTHY: the closed list of this release."""

    STARTUP = "startup"
    STEP = "step"
    HEARTBEAT = "heartbeat"
    LEASE = "lease"
    SCHEDULER = "scheduler"
    PROGRESS = "progress"
    DRAIN = "drain"
    EXIT = "exit"  # the main process ended
    RANK_EXIT = "rank_exit"  # an attached rank ended without a bye
    SPAWN = "spawn"  # it could not be started
    GATE = "gate"  # what it needs before a start did not become free
    PLATFORM = "platform"  # whoever starts it did not


Leases = tuple[Lease, ...]

BY_YAML, LEARNED = "yaml", "learned"
"""Which rule set a clock's limits."""

WORKER = ""
"""The subject of a clock that belongs to no single rank."""


@dataclass(frozen=True, slots=True)
class RunningClock:
    """One clock: where it began, what it may take, and when the two limits fall.

    `later_ended`: how many later steps of its rank have ended while `step` is open. `idle_at`: no
    rank that does not work is dead before; None: the end of its window says when. `rule`: whose
    limits these are. `starved`: seconds by which the deadline, and never the hard cap, is pushed
    out because the worker could not use them.
    """

    subject: str
    cause: Cause
    began: float
    budget: float
    deadline: Deadline
    hard_cap: float
    cap_at: float
    arithmetic: str
    step: Step | None = None
    later_ended: int = 0
    idle_at: float | None = None
    rule: str = BY_YAML
    starved: float = 0.0

    @property
    def key(self) -> tuple[str, Cause, int]:
        """Two clocks with the same key time the same thing."""
        return self.subject, self.cause, self.step.number if self.step else 0


@dataclass(frozen=True, slots=True)
class _Limit:
    """What a clock may take, in seconds, and the arithmetic behind it."""

    budget: float
    hard_cap: float
    arithmetic: str


@dataclass(frozen=True, slots=True)
class Scene:
    """All that the clocks of one worker depend on."""

    policy: WorkerPolicy
    evidence: WorkerEvidence
    spawned_at: float
    ready: bool
    came_up: frozenset[str]
    awareness: Awareness
    now: float


def running_clocks(scene: Scene) -> tuple[RunningClock, ...]:
    """Every clock that runs for this worker at `scene.now`."""
    starved = scene.evidence.starved
    return tuple(with_starved(clock, starved, scene.now) for clock in _all_clocks(scene))


def with_starved(clock: RunningClock, starved: Starved, now: float) -> RunningClock:
    """Time that the worker could not use shifts a deadline, by one budget of it at most.

    Only one that has come is shifted: of a thousand ranks nearly none is late.
    """
    if not starved.marks or not clock.deadline.passed(now):
        return clock
    lost = min(clock.budget, starved.lost(clock.began, now))
    if lost <= 0.0 or clock.deadline.at is None:
        return clock
    return replace(
        clock,
        deadline=Deadline(clock.deadline.at + lost),
        starved=lost,
        idle_at=None if clock.idle_at is None else clock.idle_at + lost,
    )


def live_ranks(evidence: WorkerEvidence) -> dict[str, RankEvidence]:
    """Ranks that are attached and have neither said bye nor been lost."""
    return {n: r for n, r in evidence.ranks.items() if not (r.bye or r.lost)}


def _all_clocks(scene: Scene) -> Iterator[RunningClock]:
    ranks = live_ranks(scene.evidence)
    if scene.evidence.held:
        return  # nothing has been started that could be late
    silence = _heartbeat_limit(scene.policy)
    if not scene.ready:
        yield from _worker_startup(scene, ranks)
    for name, rank in ranks.items():
        if name in scene.came_up:
            yield from _rank_clocks(scene, name, rank, silence)
        elif scene.ready:
            yield _startup(scene, name, rank.attached_at, rank.leases)
        if name not in scene.came_up and rank.lease is not None:
            yield _lease(scene, name, rank.lease)
    if scene.ready and not ranks and scene.policy.agent == AGENT_REQUIRED:
        yield _no_agent_left(scene)
    if scene.ready:
        yield from _scheduler(scene, ranks)
        yield from _progress(scene)


def _worker_startup(scene: Scene, ranks: dict[str, RankEvidence]) -> Iterator[RunningClock]:
    loading = [name for name in ranks if name not in scene.came_up]
    for name in loading or [WORKER]:
        leases = ranks[name].leases if name in ranks else ()
        yield _startup(scene, name, scene.spawned_at, leases)


def _startup(scene: Scene, subject: str, began: float, leases: Leases) -> RunningClock:
    policy = scene.policy
    limit = _Limit(policy.startup, policy.startup_cap(), f"startup budget {policy.startup:g} s")
    return _clock(scene, subject, Cause.STARTUP, began, limit, leases)


def _rank_clocks(
    scene: Scene, name: str, rank: RankEvidence, silence: _Limit
) -> Iterator[RunningClock]:
    oldest, lease = rank.oldest, rank.lease
    if rank.draining:
        yield _drain(scene, name, rank)
    if oldest is not None:
        clock, later = _step(scene, name, rank, oldest), rank.later_ended
        yield replace(clock, later_ended=later) if later else clock
    if oldest is None or not rank.page_readable:
        yield _clock(scene, name, Cause.HEARTBEAT, last_sign(rank), silence, rank.leases)
    if lease is not None:
        yield _lease(scene, name, lease)


def _drain(scene: Scene, name: str, rank: RankEvidence) -> RunningClock:
    began, seconds = _drains_since(rank), scene.policy.drain
    limit = _Limit(seconds, scene.policy.step_cap(seconds), f"drain budget {seconds:g} s")
    return _clock(scene, name, Cause.DRAIN, began, limit, rank.leases)


def _drains_since(rank: RankEvidence) -> float:
    return rank.attached_at if rank.phase_since is None else rank.phase_since


def _drain_push(scene: Scene, rank: RankEvidence, began: float) -> float:
    """By how much draining pushes out a step's clock that began then."""
    if not rank.draining:
        return 0.0
    since = _drains_since(rank)
    return elapsed(max(began, since), since + scene.policy.drain)


def _heartbeat_limit(policy: WorkerPolicy) -> _Limit:
    seconds = policy.heartbeat_timeout
    return _Limit(seconds, policy.heartbeat_cap(), f"heartbeat timeout {seconds:g} s")


def last_sign(rank: RankEvidence) -> float:
    """When the rank last gave any sign of life: attach, a beat, or a move of its page."""
    last = rank.attached_at
    for sign in (rank.beat_at, rank.moved_at):
        if sign is not None and sign > last:
            last = sign
    return last


def _step(scene: Scene, name: str, rank: RankEvidence, step: Step) -> RunningClock:
    yaml = configured(scene.policy, step)
    limit = _Limit(yaml.alarm, yaml.busy_death, yaml.arithmetic)
    clock = _clock(scene, name, Cause.STEP, step.begin, limit, rank.leases, step)
    clock = _pushed(clock, _drain_push(scene, rank, step.begin))
    if scene.policy.learn == LEARN_ON and rank.usual is not None:
        return as_learned(clock, scene.policy, rank.usual)
    return clock


def as_learned(clock: RunningClock, policy: WorkerPolicy, usual: Usual) -> RunningClock:
    """The clock of a step with the limits that were learned in place of the YAML's.

    Whatever has pushed out its deadline pushes these out too, but for starved time: that counts
    anew, for by these limits it may be late earlier.
    """
    if clock.step is None or clock.deadline.at is None:
        return clock
    limits = bounds_of(policy, usual, clock.step)
    origin = clock.began + elapsed(clock.began + clock.budget + clock.starved, clock.deadline.at)
    return replace(
        clock,
        budget=limits.alarm,
        deadline=Deadline(origin + limits.alarm),
        hard_cap=limits.busy_death,
        cap_at=origin + limits.busy_death,
        arithmetic=limits.arithmetic,
        idle_at=origin + limits.idle_death,
        starved=0.0,
        rule=LEARNED,
    )


def _pushed(clock: RunningClock, seconds: float) -> RunningClock:
    if seconds == 0.0:
        return clock
    at = None if clock.deadline.at is None else clock.deadline.at + seconds
    return replace(clock, deadline=Deadline(at), cap_at=clock.cap_at + seconds)


def _lease(scene: Scene, name: str, lease: Lease) -> RunningClock:
    policy = scene.policy
    granted = granted_seconds(lease, policy.lease_cap)
    text = f"lease {lease.name!r} {lease.seconds:g} s"
    if granted < lease.seconds:
        text += f", capped at {granted:g} s"
    limit = _Limit(granted, policy.step_cap(granted), text)
    return _clock(scene, name, Cause.LEASE, lease.begin, limit, ())


def _no_agent_left(scene: Scene) -> RunningClock:
    signs = [last_sign(rank) for rank in scene.evidence.ranks.values()]
    limit = _heartbeat_limit(scene.policy)
    limit = replace(limit, arithmetic=f"no agent is left; {limit.arithmetic}")
    return _clock(scene, WORKER, Cause.HEARTBEAT, max([scene.spawned_at, *signs]), limit, ())


def _scheduler(scene: Scene, ranks: dict[str, RankEvidence]) -> Iterator[RunningClock]:
    if any(rank.steps or rank.draining for rank in ranks.values()):
        return  # the open step, or the drain, has its own deadline
    stepped = [rank.stepped_at for rank in ranks.values() if rank.stepped_at is not None]
    first = all(rank.steps_begun == 0 for rank in ranks.values())
    for name, rank in ranks.items():
        if rank.work is None or rank.work.unfinished < 1:
            continue
        budget = scene.policy.step_budget(None, None)
        seconds = max(budget.seconds, scene.policy.first_step) if first else budget.seconds
        text = f"{rank.work.unfinished} requests wait and no step begins; {budget.arithmetic}"
        began = max([rank.work.since, *stepped])
        limit = _Limit(seconds, scene.policy.step_cap(seconds), text)
        yield _clock(scene, name, Cause.SCHEDULER, began, limit, rank.leases)


def _progress(scene: Scene) -> Iterator[RunningClock]:
    seen, seconds = scene.evidence.progress, scene.policy.progress_budget
    if seconds is None or seen is None or seen.work_since is None or seen.counter is None:
        return
    limit = _Limit(seconds, scene.policy.step_cap(seconds), f"progress budget {seconds:g} s")
    began = max(seen.moved_at, seen.work_since)
    yield _clock(scene, WORKER, Cause.PROGRESS, began, limit, ())


def _clock(
    scene: Scene,
    subject: str,
    cause: Cause,
    began: float,
    limit: _Limit,
    leases: Leases,
    step: Step | None = None,
) -> RunningClock:
    pushed = scene.awareness.lost(began, scene.now)
    if leases:
        pushed += lease_seconds(leases, began, scene.policy.lease_cap)
    return RunningClock(
        subject=subject,
        cause=cause,
        began=began,
        budget=limit.budget,
        deadline=Deadline(began + limit.budget + pushed),
        hard_cap=limit.hard_cap,
        cap_at=began + limit.hard_cap + pushed,
        arithmetic=limit.arithmetic,
        step=step,
    )


def granted_seconds(lease: Lease, cap: float) -> float:
    """How much of what a lease asks for it gets."""
    return max(0.0, min(lease.seconds, cap))


def lease_seconds(leases: Iterable[Lease], since: float, cap: float) -> float:
    """By how much leases push out a clock that began at `since`, at most `cap` in all.

    What counts is the time after `since` that at least one of them was granted. A lease that is
    given back counts until then; a new one only ever adds to what others have granted.
    """
    spans = ((max(since, lease.begin), _granted_until(lease, cap)) for lease in leases)
    total, covered = 0.0, since
    for begin, end in sorted(spans):
        total += elapsed(max(begin, covered), end)
        covered = max(covered, end)
    return min(total, cap)


def _granted_until(lease: Lease, cap: float) -> float:
    last = lease.begin + granted_seconds(lease, cap)
    return last if lease.end is None else min(lease.end, last)
