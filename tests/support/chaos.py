"""Any interleaving of what can happen to one worker, and what must hold through all of it.

`Chaos` holds one worker with the real core, the real acceptance of beats and the real gathering of
evidence; only pages and processes are made up. A script of three bytes an event says what happens
(`play`). After each call into the core the invariants are checked against a model of their own:
who lives, who wants what, when each clock began, how long the loop itself stood still.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import cast

from stepwarden.core import turn, worker
from stepwarden.core.action import EndTree, Spawn
from stepwarden.core.awareness import LATE_WAKE_SECONDS, Awareness
from stepwarden.core.budget import Formula, Rows
from stepwarden.core.clocks import live_ranks
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import (
    CpuSample,
    EndedStep,
    Exit,
    Lease,
    ProcessId,
    Step,
    Work,
    WorkerEvidence,
)
from stepwarden.core.heartbeat import BeatFacts, LeaseFacts, OpenStepFacts, WorkFacts
from stepwarden.core.lifecycle import LIVE, State
from stepwarden.core.policy import (
    AGENT_OPTIONAL,
    HardCaps,
    RestartPolicy,
    WorkerPolicy,
)
from stepwarden.core.verdict import Suspicion
from stepwarden.core.worker import Outcome, WorkerState
from stepwarden.daemon import gather
from stepwarden.daemon.leases import KEPT_LEASES
from stepwarden.daemon.life import Life
from stepwarden.edge.page_reader import PageReader
from stepwarden.edge.page_view import PageView

EPSILON = 1e-6
RANKS = ("0", "1", "core")
MOST_TURNS_AT_ONCE = 4

_BASE = WorkerPolicy(
    "w",
    step=Rows(((1, 1.0), (8, 2.0), (64, 6.0)), maximum=30.0),
    max_num_seqs=64,
    startup=8.0,
    first_step=4.0,
    heartbeat_timeout=3.0,
    window=2.0,
    lease_cap=20.0,
    restart=RestartPolicy(delay=1.0, max_delay=4.0, limit=3, within=30.0, stable=10.0),
)
POLICIES = (
    _BASE,
    replace(_BASE, window=0.5, hard_caps=HardCaps(step=1.0, startup=1.0, heartbeat=1.0)),
    replace(_BASE, window=5.0, busy_factor=2.0, restart=replace(_BASE.restart, limit=1)),
    replace(_BASE, step=Formula(0.0, 0.02, maximum=3.0), first_step=0.0, agent=AGENT_OPTIONAL),
    replace(_BASE, startup=3.0, restart=replace(_BASE.restart, on="failure", delay=0.0)),
    replace(_BASE, busy_cpu=60.0, restart=replace(_BASE.restart, on="never")),
    replace(_BASE, restart=replace(_BASE.restart, limit=6, within=5.0, stable=1.0)),
)
CPUS = (0.0, 3.0, 50.0, 100.0, 6400.0, None)
STATES = ("R", "S", "D", "T", "Z", "t")
BATCHES = (1, 8, 64, 200, None, 2)
PHASES = ("idle", "decode", "loading", "compiling", "idle", "draining")


@dataclass(slots=True)
class Rank:
    """One rank as it really is; beats and pages show some of it."""

    name: str
    pid: int
    attached: float
    phase: str = "idle"
    page: bool = True
    frozen: bool = False
    seq: int = 0
    tick: int = 0
    open: list[Step] = field(default_factory=list)
    ended: list[EndedStep] = field(default_factory=list)
    begun: int = 0
    lease: Lease | None = None
    work: Work | None = None
    cpu: float = 0.0
    cpu_at: float = 0.0
    percent: float | None = 0.0
    state: str = "S"
    bye: bool = False
    sent: list[BeatFacts] = field(default_factory=list)

    def view(self) -> PageView:
        """Its page as the reader would show it."""
        return PageView(
            name=f"{self.name}-{self.pid}.page",
            rank=self.name,
            pid=self.pid,
            start_ticks=self.pid,
            own_clock=True,
            holder=None,
            uid=0,
            tick=self.tick,
            tick_at=self.attached,
            phase=self.phase,
            phase_since=self.attached,
            lease=self.lease,
            work=self.work,
            steps=tuple(self.open),
            steps_begun=self.begun,
            last_ended=tuple(self.ended[-8:]),
            overflows=0,
            closed=self.bye,
            in_motion=False,
            lease_stamp=self.lease.begin if self.lease else 0.0,
        )

    def beat(self, now: float) -> BeatFacts:
        """The next beat it would send."""
        self.seq += 1
        oldest, lease, work = self.open[0] if self.open else None, self.lease, self.work
        return BeatFacts(
            rank=self.name,
            seq=self.seq,
            pid=self.pid,
            start_ticks=self.pid,
            now=now,
            own_clock=True,
            phase=self.phase,
            phase_since=self.attached,
            oldest=OpenStepFacts(oldest.number, oldest.begin, oldest.num_seqs or 0, phase="decode")
            if oldest
            else None,
            in_flight=len(self.open),
            steps_begun=self.begun,
            steps_ended=len(self.ended),
            cpu_seconds=self.cpu,
            lease=LeaseFacts(lease.name, lease.begin, lease.seconds) if lease else None,
            work=WorkFacts(work.unfinished, work.since, work.loop_turns, work.loop_at)
            if work
            else None,
            bye=self.bye,
        )

    def burn(self, now: float) -> None:
        """Bring its CPU time up to `now`."""
        self.cpu += (self.percent or 0.0) / 100.0 * (now - self.cpu_at)
        self.cpu_at = now


class Pages:
    """The pages of one life: those of its ranks that can be read."""

    def __init__(self) -> None:
        self.ranks: dict[str, Rank] = {}

    def read(self, _now: float) -> dict[str, PageView]:
        return {name: rank.view() for name, rank in self.ranks.items() if rank.page}


@dataclass(slots=True)
class Known:
    """What the model keeps of one suspicion: when it came, and what window it had then."""

    since: float
    window: float


@dataclass(frozen=True, slots=True)
class Death:
    """When, and what the policy said then about how many are kept in mind."""

    at: float
    limit: int
    within: float


class Chaos:
    """One worker in any weather."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.policy = POLICIES[0]
        self.awareness = Awareness()
        self.pauses: list[tuple[float, float]] = []
        self.events = 0  # beats, steps, exits, commands, burials ... : whatever happened
        self.turns = 0
        self.counts: dict[str, int] = {}
        self.seen_events: dict[str, int] = {}
        self.leased: dict[str, list[Lease]] = {}  # by rank: all that it has held in this life
        self.pid = 100
        self.life: Life | None = None
        self.pages = Pages()
        self.old_beats: list[BeatFacts] = []
        # The model.
        self.tree_alive = False
        self.wanted = True
        self.unkillable = False
        self.burial_since: float | None = None
        self.first_ready: float | None = None
        self.unhealthy_since = 0.0
        self.streak = 0
        self.deaths: list[Death] = []
        self.known: dict[tuple[str, str, int], Known] = {}
        self.opened: set[tuple[str, str, int]] = set()
        self.state = WorkerState("w")
        self.expected = self.now
        self.take(worker.initial(self.policy, self.now))

    # The script.

    def play(self, script: bytes) -> None:
        """Three bytes an event: which, and two numbers. Zeros do nothing."""
        for place in range(0, len(script) - 2, 3):
            code, first, second = script[place : place + 3]
            if code:
                happen = WHAT[code % len(WHAT)]
                self.events += 1
                self.counts[happen.__name__] = self.counts.get(happen.__name__, 0) + 1
                happen(self, first, second)

    def ranks(self) -> Mapping[str, Rank]:
        return self.pages.ranks

    def some_rank(self, number: int) -> Rank | None:
        names = sorted(self.pages.ranks)
        return self.pages.ranks[names[number % len(names)]] if names else None

    def go(self, seconds: float) -> None:
        """Time passes; the loop turns whenever it is due."""
        end = self.now + seconds
        turns_here = 0
        while self.expected <= end:
            turns_here = turns_here + 1 if self.expected <= self.now else 0
            assert turns_here < MOST_TURNS_AT_ONCE, "the loop spins"
            self.move(max(self.now, self.expected))
            self.turn()
        self.move(end)

    def move(self, to: float) -> None:
        """Only the clock moves, and what ticks and burns by itself."""
        for rank in self.pages.ranks.values():
            rank.burn(to)
            if not rank.frozen:
                rank.tick += int(to) - int(self.now)
        self.now = to

    def stand_still(self, seconds: float) -> None:
        """The loop wakes so much later than it was due."""
        due = max(self.now, self.expected)
        self.move(due + seconds)
        if self.now - self.expected > LATE_WAKE_SECONDS:
            self.pauses.append((self.expected, self.now))
        self.turn()

    # Into the core and out again.

    def evidence(self) -> WorkerEvidence:
        life = self.life
        if life is None:
            return WorkerEvidence()
        gather.read_pages(life, lambda _: True, self.now)
        for name, memory in life.ranks.items():
            rank = self.pages.ranks.get(name)
            if rank is not None and rank.percent is not None:
                seconds = {ProcessId(rank.pid, rank.pid): rank.cpu}
                memory.cpu = CpuSample(self.now, seconds, rank.state)
            else:
                memory.cpu = None
        return gather.evidence_of(life)

    def turn(self) -> None:
        """One turn of the loop."""
        self.turns += 1
        self.awareness = self.awareness.woke(self.expected, self.now)
        seen = self.evidence()
        before = self.state
        outcome = turn.advance(self.state, self.policy, seen, self.awareness, self.now)
        for event in outcome.events:
            self.check_verdict(event, before, seen)
        self.take(outcome, seen)

    def take(self, outcome: Outcome, seen: WorkerEvidence | None = None) -> None:
        before, self.state = self.state, outcome.state
        for event in outcome.events:
            what = f"{event.kind} {event.to_state} {event.cause}".rstrip()
            self.seen_events[what] = self.seen_events.get(what, 0) + 1
            if event.kind is Kind.TRANSITION:
                self.note_transition(event)
        for action in outcome.actions:
            if isinstance(action, Spawn):
                self.spawn(action, before)
            else:
                self.end_tree(action)
        self.note_suspicions()
        self.check_state()
        if seen is None:
            seen = self.evidence()
        else:
            for suspicion in self.state.suspicions:  # judged just now
                self.check_suspicion(suspicion, seen)
            self.check_ranks(seen)
        clocks = turn.clocks_of(self.state, self.policy, seen, self.awareness, self.now)
        wake = turn.next_wake(self.state, self.policy, clocks, self.awareness, self.now)
        wait = wake.remaining(self.now)
        assert wait is not None
        assert 0.0 <= wait <= turn.HEARTBEAT_SECONDS + EPSILON
        assert wake.at is not None
        assert wake.at >= self.now, "what is due in the past is taken for a pause of ours"
        self.expected = wake.at

    def spawn(self, action: Spawn, before: WorkerState) -> None:
        assert not self.tree_alive, "two lives at the same time"
        assert self.burial_since is None
        assert self.wanted, "started although the operator said stop"
        assert action.incarnation == before.incarnation + 1
        self.tree_alive = True
        self.first_ready = None
        self.leased = {}
        self.old_beats = [b for rank in self.pages.ranks.values() for b in rank.sent][-20:]
        self.pages = Pages()
        self.life = Life(
            "w",
            action.incarnation,
            f"w.{action.incarnation}",
            Path(),
            cast(PageReader, self.pages),
            token="",
            spawned_at=self.now,
            main=ProcessId(self.next_pid(), 1),
        )

    def end_tree(self, action: EndTree) -> None:
        assert action.incarnation == self.state.incarnation
        assert self.burial_since is None, "a tree is ended twice"
        assert self.tree_alive
        self.burial_since = self.now

    def bury(self, leftovers: frozenset[ProcessId]) -> None:
        before = self.state
        self.burial_since = None
        self.tree_alive = bool(leftovers)
        spread = (self.events % 21 - 10) / 10.0
        outcome = worker.buried(self.state, self.policy, leftovers, self.now, spread)
        self.check_restart_budget(before, outcome)
        self.take(outcome)

    def next_pid(self) -> int:
        self.pid += 1
        return self.pid

    # What the model keeps.

    def lost(self, since: float) -> float:
        """Seconds since then in which the loop stood still, by the model's own count."""
        return sum(max(0.0, end - max(since, begin)) for begin, end in self.pauses)

    def leased_since(self, name: str, since: float) -> float:
        """Seconds since then that any lease of the rank covers, counted in small pieces."""
        cap = self.policy.lease_cap
        spans = []
        for lease in self.leased.get(name, [])[-KEPT_LEASES:]:
            last = lease.begin + min(lease.seconds, cap)
            last = last if lease.end is None else min(last, lease.end)
            spans.append((max(since, lease.begin), last))
        edges = sorted({edge for span in spans for edge in span})
        pieces = [
            after - before
            for before, after in pairwise(edges)
            if any(begin <= before and after <= end for begin, end in spans)
        ]
        return min(cap, sum(pieces))

    def deadlines(self) -> dict[tuple[str, str, int], float]:
        """When each clock that runs now ends."""
        seen = self.evidence()
        running = turn.clocks_of(self.state, self.policy, seen, self.awareness, self.now)
        return {clock.key: clock.deadline.at or 0.0 for clock in running}

    def note_transition(self, event: Event) -> None:
        if event.to_state == "HEALTHY" and self.first_ready is None:
            self.first_ready = self.now
        if event.to_state == "UNHEALTHY":
            self.unhealthy_since = self.now
        if event.to_state == "DEAD":
            self.note_death(event)

    def note_death(self, event: Event) -> None:
        """Count it; `uptime` is the most that can be said of how long the worker was well."""
        restart = self.policy.restart
        ended = self.now
        if event.cause in {"step", "lease", "scheduler"}:  # a hang is no uptime
            age = event.data["age"]
            assert isinstance(age, float)
            ended -= age
        uptime = 0.0 if self.first_ready is None else ended - self.first_ready
        self.streak = 1 if uptime >= restart.stable else self.streak + 1
        self.deaths.append(Death(self.now, restart.limit, restart.within))
        assert event.from_state in {state.value for state in LIVE}

    def note_suspicions(self) -> None:
        former, self.known = self.known, {}
        self.opened = {s.key for s in self.state.suspicions if s.key not in former}
        starts = [known for (_, cause, _), known in former.items() if cause == "startup"]
        for suspicion in self.state.suspicions:
            known = former.get(suspicion.key)
            if known is None:
                known = Known(self.now, self.policy.window)
                if suspicion.clock.cause == "startup" and starts and not self.state.ready:
                    # The same late start under another name: its first window was given already.
                    known = min(starts, key=lambda start: start.since)
            self.known[suspicion.key] = known

    # What must hold.

    def check_state(self) -> None:
        state = self.state
        assert (state.lifecycle is State.UNHEALTHY) == bool(state.suspicions)
        if state.lifecycle is State.HEALTHY:
            assert state.ready
        if not self.wanted:
            assert state.lifecycle not in LIVE | {State.RESTARTING}
        if state.lifecycle in LIVE:
            assert self.tree_alive
            assert self.burial_since is None
        if state.lifecycle is State.RESTARTING:
            assert not self.tree_alive
        if state.leftovers:
            assert state.lifecycle in {State.FAILED, State.STOPPED}

    def check_suspicion(self, suspicion: Suspicion, seen: WorkerEvidence) -> None:
        """It is about something real, and it does not outlive its hard cap."""
        clock = suspicion.clock
        assert clock.hard_cap >= clock.budget
        self.check_cap(suspicion.key, clock.began, clock.hard_cap)
        if clock.cause == "step":
            rank = seen.ranks[clock.subject]
            assert clock.step in rank.steps

    def check_cap(self, key: tuple[str, str, int], began: float, cap: float) -> None:
        """Nothing that began then lives longer than its hard cap, but for its first window."""
        held = key[0] in self.leased or (self.leased and not key[0])
        leased = self.policy.lease_cap if held else 0.0
        known = self.known.get(key)
        first = 0.0 if known is None else known.since + known.window + self.lost(known.since)
        limit = max(began + cap + self.lost(began) + leased, first)
        # One that was opened in this very turn is judged in the next, which is due at once.
        assert self.now <= limit + EPSILON or key in self.opened, key

    def check_ranks(self, seen: WorkerEvidence) -> None:
        """The same, asked of the ranks and not of the core's own suspicions."""
        policy, life = self.policy, self.life
        if self.state.lifecycle not in LIVE or life is None:
            return
        for name, rank in live_ranks(seen).items():
            if rank.oldest is None or name not in self.state.came_up:
                continue
            step = rank.oldest
            budget = policy.step_budget(step.num_seqs, step.num_tokens).seconds
            if step.number == 1:
                budget = max(budget, policy.first_step)
            self.check_cap((name, "step", step.number), step.begin, policy.step_cap(budget))
        if not self.state.ready:
            late = [name for name, cause, _ in self.known if cause == "startup"]
            for name in late or [""]:
                self.check_cap((name, "startup", 0), life.spawned_at, policy.startup_cap())

    def check_verdict(self, event: Event, before: WorkerState, seen: WorkerEvidence) -> None:
        if event.cause == "step" and event.kind in {Kind.TRANSITION, Kind.SUSPICION}:
            assert event.to_state in {"", "UNHEALTHY", "DEAD"}
            assert seen.ranks[event.rank].steps, "idle, and judged by a step's deadline"
        if event.to_state == "UNHEALTHY":
            self.check_late(event, seen)
        if event.to_state != "DEAD":
            return
        gone = (
            seen.exit is not None
            or seen.spawn_error is not None
            or any(rank.lost and not rank.bye for rank in seen.ranks.values())
        )
        if event.cause in {"exit", "rank_exit", "spawn"}:
            assert gone
            return
        assert not gone
        assert event.from_state == "UNHEALTHY"
        self.check_late(event, seen)
        self.check_condemned(event, before, seen)

    def check_late(self, event: Event, seen: WorkerEvidence) -> None:
        """The deadline has really passed, by the model's own arithmetic; leases only add."""
        policy, life = self.policy, self.life
        assert life is not None
        if event.cause == "startup":
            began = life.ranks[event.rank].attached_at if event.rank else life.spawned_at
            limit = policy.startup
            began = min(began, life.spawned_at) if not self.state.ready else began
            limit += self.leased_since(event.rank, began)
        elif event.cause == "heartbeat":
            rank = seen.ranks.get(event.rank)
            signs = [rank] if rank else list(seen.ranks.values())
            began = max([life.spawned_at, *(r.beat_at or r.attached_at for r in signs)])
            limit = policy.heartbeat_timeout
        elif event.cause == "step":
            step = seen.ranks[event.rank].steps[0]
            began, limit = step.begin, policy.step_budget(step.num_seqs, None).seconds
            limit += self.leased_since(event.rank, began)
        elif event.cause == "lease":
            lease = seen.ranks[event.rank].lease
            assert lease is not None
            assert lease.end is None
            began, limit = lease.begin, min(lease.seconds, policy.lease_cap)
        else:
            assert event.cause == "scheduler", event
            work = seen.ranks[event.rank].work
            assert work is not None
            assert work.unfinished > 0
            assert not any(rank.steps for rank in live_ranks(seen).values())
            began, limit = work.since, policy.step_budget(None, None).seconds
        assert self.now - began - self.lost(began) >= limit - EPSILON

    def check_condemned(self, event: Event, before: WorkerState, seen: WorkerEvidence) -> None:
        """Its first window was whole; a rank that visibly works had all of its hard cap."""
        (suspicion,) = [
            s
            for s in before.suspicions
            if (s.clock.subject, s.clock.cause) == (event.rank, event.cause)
            and (s.clock.step.number if s.clock.step else None) == event.data["step"]
        ]
        known = self.known[suspicion.key]
        waited = self.now - known.since - self.lost(known.since)
        assert waited >= known.window - EPSILON, "dead inside its first window"
        percent = event.data["cpu_percent"]
        rank = self.pages.ranks.get(event.rank)
        stopped = rank is not None and rank.state in {"T", "Z"}
        if isinstance(percent, float) and percent > self.policy.busy_cpu and not stopped:
            age, cap = event.data["age"], event.data["hard_cap"]
            assert isinstance(age, float)
            assert isinstance(cap, float)
            assert age >= cap - EPSILON
        assert seen.exit is None

    def check_restart_budget(self, before: WorkerState, outcome: Outcome) -> None:
        if outcome.state.lifecycle is not State.RESTARTING or before.restart_wanted:
            return
        restart = self.policy.restart
        assert self.streak < restart.limit, "restarted beyond its limit of deaths in a row"
        # Deaths that a former policy had the core forget do not count here either.
        within = min([restart.within, *(death.within for death in self.deaths)])
        recent = [death for death in self.deaths if self.now - death.at <= within]
        forgot = any(death.limit < restart.limit for death in recent)
        assert len(recent) < restart.limit or forgot, "restarted beyond its limit within the time"


# What can happen.


def small_time(world: Chaos, first: int, _: int) -> None:
    world.go(first / 255)


def medium_time(world: Chaos, first: int, _: int) -> None:
    world.go(first / 255 * 4.0)


def long_time(world: Chaos, first: int, _: int) -> None:
    world.go(first / 255 * 40.0)


def look_at_once(world: Chaos, first: int, _: int) -> None:
    """The edge wakes the loop before it is due."""
    world.go(first / 255 * 0.05)
    world.turn()


def late_wake(world: Chaos, first: int, second: int) -> None:
    world.stand_still(first / 255 * (20.0 if second < 40 else 0.9))


def attach(world: Chaos, first: int, second: int) -> None:
    name = RANKS[first % len(RANKS)]
    if world.tree_alive and world.state.lifecycle in LIVE and name not in world.pages.ranks:
        phase = "loading" if second < 100 else "idle"
        rank = Rank(name, world.next_pid(), world.now, phase, page=second % 5 != 0)
        rank.cpu_at = world.now
        world.pages.ranks[name] = rank
        send(world, rank)


def send(world: Chaos, rank: Rank) -> None:
    if world.life is not None and not rank.frozen:
        beat = rank.beat(world.now)
        rank.sent.append(beat)
        gather.take_beat(world.life, beat, world.now)


def beat_of_each(world: Chaos, first: int, second: int) -> None:
    for rank in world.pages.ranks.values():
        send(world, rank)
    del first, second


def stale_beat(world: Chaos, first: int, second: int) -> None:
    """Late, duplicate, out of order, or of a former life's process."""
    rank = world.some_rank(second)
    stale = list(world.old_beats) + (rank.sent[-10:] if rank else [])
    if stale and world.life is not None:
        beat = stale[first % len(stale)]
        memory = world.life.ranks.get(beat.rank)
        known = memory.beats if memory else None
        if known is None or memory is None or known.bye:
            return  # a first beat, or one after a bye, is believed
        gather.take_beat(world.life, beat, world.now)
        if memory.beats is not None:
            assert (memory.beats.step, memory.beats.beat_at) == (known.step, known.beat_at)


def begin_step(world: Chaos, first: int, second: int) -> None:
    rank = world.some_rank(first)
    if rank and not rank.frozen and not rank.bye and len(rank.open) < 3:
        rank.begun += 1
        batch = BATCHES[second % len(BATCHES)]
        rank.open.append(Step(rank.begun, world.now, batch, None, "decode"))


def end_step(world: Chaos, first: int, second: int) -> None:
    rank = world.some_rank(first)
    if rank and rank.open and not rank.frozen:
        step = rank.open.pop(0 if second < 200 else -1)
        rank.ended.append(EndedStep(step.number, world.now - step.begin))


def whole_steps(world: Chaos, first: int, second: int) -> None:
    """Healthy work: a few steps, each within its budget, with beats between."""
    for _ in range(1 + first % 4):
        for number in range(len(RANKS)):
            begin_step(world, number, second)
        world.go(0.2)
        for number in range(len(RANKS)):
            end_step(world, number, 0)
        beat_of_each(world, 0, 0)


def freeze(world: Chaos, first: int, _: int) -> None:
    rank = world.some_rank(first)
    if rank:
        rank.frozen = True


def thaw(world: Chaos, first: int, second: int) -> None:
    for rank in world.pages.ranks.values():
        rank.frozen = False
    beat_of_each(world, first, second)


def change_phase(world: Chaos, first: int, second: int) -> None:
    rank = world.some_rank(first)
    if rank and not rank.frozen:
        rank.phase = PHASES[second % len(PHASES)]


def all_loaded(world: Chaos, first: int, second: int) -> None:
    for rank in world.pages.ranks.values():
        rank.phase = "idle"
    beat_of_each(world, first, second)


def change_cpu(world: Chaos, first: int, second: int) -> None:
    for rank in world.pages.ranks.values():
        rank.burn(world.now)
        rank.percent = CPUS[first % len(CPUS)]
        rank.state = STATES[second % len(STATES)] if second > 200 else "R"


def lease_or_give_back(world: Chaos, first: int, second: int) -> None:
    rank = world.some_rank(first)
    if rank is None or rank.frozen:
        return
    had = world.leased.setdefault(rank.name, [])
    if rank.lease is not None:
        had[-1] = replace(rank.lease, end=world.now)
        rank.lease = None
        send(world, rank)
    elif not had or had[-1].begin < world.now:
        before = world.deadlines()
        rank.lease = Lease("swap", world.now, second / 4.0)
        had.append(rank.lease)
        send(world, rank)
        after = world.deadlines()
        for key in before.keys() & after.keys():
            if key[1] in {"heartbeat", "lease"}:  # these begin anew
                continue
            assert after[key] >= before[key] - EPSILON, "a lease brought a deadline nearer"


def queue_work(world: Chaos, first: int, _: int) -> None:
    rank = world.pages.ranks.get("core")
    if rank is not None and not rank.frozen:
        had = rank.work
        since = had.since if had and had.unfinished else world.now
        rank.work = Work(first % 4, since, first, world.now)


def say_bye(world: Chaos, first: int, second: int) -> None:
    rank = world.some_rank(first)
    if rank and second < 60:
        rank.bye = True
        rank.open.clear()
        send(world, rank)


def hide_page(world: Chaos, first: int, _: int) -> None:
    rank = world.some_rank(first)
    if rank:
        rank.page = not rank.page


def lose_rank(world: Chaos, first: int, second: int) -> None:
    rank = world.some_rank(first)
    if rank and world.life and rank.name in world.life.ranks and second < 80:
        world.life.ranks[rank.name].lost = True
        world.turn()


def main_ends(world: Chaos, first: int, second: int) -> None:
    life = world.life
    if life and world.state.lifecycle in LIVE and second < 120:
        life.exit = Exit(code=first) if first % 3 else Exit(signal=1 + first % 31)
        world.turn()


def spawn_fails(world: Chaos, _: int, second: int) -> None:
    life = world.life
    if life and world.state.lifecycle is State.STARTING and second < 60:
        life.main, life.spawn_error = None, "exec: no such file"
        world.turn()


def operator(world: Chaos, first: int, second: int) -> None:
    word = ("start", "restart", "start", "stop")[first % 4]
    if second > 150 and word != "start":
        return
    outcome = worker.command(world.state, word, world.now)
    if outcome.refusal is None:
        world.wanted = word != "stop"
        if world.state.lifecycle not in LIVE or word == "restart":
            world.streak, world.deaths = 0, []
    else:
        assert world.state.leftovers
    world.take(outcome)


def new_policy(world: Chaos, first: int, second: int) -> None:
    world.policy = POLICIES[first % len(POLICIES)] if second < 128 else POLICIES[0]
    world.turn()


def burial(world: Chaos, first: int, _: int) -> None:
    """The edge reports on a tree: ended, or all but something that cannot be killed."""
    if world.burial_since is not None:
        stuck = first < 25
        world.bury(frozenset({ProcessId(77, 7)} if stuck else ()))
    elif world.state.leftovers and first > 128:
        world.bury(frozenset())


def stray_report(world: Chaos, first: int, second: int) -> None:
    """A report of a burial that nobody waits for changes nothing."""
    if world.burial_since is None and not world.state.leftovers:
        outcome = worker.buried(world.state, world.policy, frozenset(), world.now, 0.0)
        assert outcome.state == world.state
        assert not outcome.actions
    del first, second


Happening = Callable[[Chaos, int, int], None]

_WEIGHTS: tuple[tuple[Happening, int], ...] = (
    (small_time, 6),
    (medium_time, 6),
    (long_time, 1),
    (look_at_once, 3),
    (late_wake, 2),
    (attach, 8),
    (beat_of_each, 10),
    (stale_beat, 5),
    (begin_step, 8),
    (end_step, 7),
    (whole_steps, 5),
    (freeze, 1),
    (thaw, 3),
    (change_phase, 1),
    (all_loaded, 4),
    (change_cpu, 2),
    (lease_or_give_back, 2),
    (queue_work, 2),
    (say_bye, 1),
    (hide_page, 1),
    (lose_rank, 1),
    (main_ends, 1),
    (spawn_fails, 1),
    (operator, 3),
    (new_policy, 2),
    (burial, 8),
    (stray_report, 1),
)


def _mixed() -> tuple[Happening, ...]:
    table = [happening for happening, weight in _WEIGHTS for _ in range(weight)]
    # Neighbouring codes should mean different things, the same ones in each run.
    random.Random(2).shuffle(table)
    return tuple(table)


WHAT = _mixed()
