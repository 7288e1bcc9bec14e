"""A world with a fake clock: one worker, its ranks, and the loop that watches over it.

    world = World(WorkerPolicy("w", ...), on_spawn=attach_at(0.5))
    world.at(10.0, lambda: world.rank().begin(8))
    world.run(60.0)
    assert world.lives == 1

Nothing sleeps. The loop turns at the instants that `next_wake` names, and when the edge would wake
it (a process ended, a rank attached, a tree was ended, a command came), like the daemon's own.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stepwarden.core import turn
from stepwarden.core.action import Spawn
from stepwarden.core.awareness import Awareness
from stepwarden.core.burying import buried
from stepwarden.core.commands import command
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import (
    CpuSample,
    EndedStep,
    Exit,
    Lease,
    ProcessId,
    RankEvidence,
    Step,
    Work,
    WorkerEvidence,
)
from stepwarden.core.policy import WorkerPolicy
from stepwarden.core.resume import resume
from stepwarden.core.usual import Usual
from stepwarden.core.worker import Outcome, WorkerState

from support.clocks import FakeClock

CHECK_INTERVAL = 0.2
"""The monitor's check interval of the field cases."""

LATEST = 2 * CHECK_INTERVAL + 0.3
"""A detection is right within so many seconds after its budget, and never before."""

TICK_SECONDS = 1.0
MOST_TURNS_AT_ONCE = 4
KEPT_ENDED = 16


@dataclass(slots=True)
class FakeRank:
    """One rank's agent and process. `percent` None: its CPU cannot be read."""

    name: str
    clock: FakeClock
    process: ProcessId
    phase: str = "idle"
    beat_every: float = 0.2
    beats: bool = True
    page: bool = True
    ticks: bool = True
    percent: float | None = 0.0
    state: str = "S"
    bye: bool = False
    lost: bool = False
    lease: Lease | None = None
    work: Work | None = None
    usual: Usual | None = None
    attached_at: float = field(init=False)
    _beat_at: float = field(init=False)
    _moved_at: float = field(init=False)
    _stepped_at: float | None = None
    _open: list[Step] = field(default_factory=list)
    _ended: list[EndedStep] = field(default_factory=list)
    _begun: int = 0
    _cpu: float = 0.0
    _cpu_at: float = field(init=False)

    def __post_init__(self) -> None:
        self.attached_at = self._beat_at = self._moved_at = self._cpu_at = self.clock.now

    def begin(self, num_seqs: int | None, num_tokens: int | None = None) -> int:
        """A step begins now; returns its number."""
        now = self.clock.now
        self._begun += 1
        self._open.append(Step(self._begun, now, num_seqs, num_tokens, "decode"))
        self._stepped_at = self._moved_at = now
        return self._begun

    def end(self, number: int | None = None) -> None:
        """The oldest open step, or the one of this number, ends now."""
        now = self.clock.now
        found = [s for s in self._open if number in (None, s.number)]
        if found:
            self._open.remove(found[0])
            self._ended.append(EndedStep(found[0].number, now - found[0].begin))
            self._stepped_at = self._moved_at = now

    def use_cpu(self, percent: float | None, state: str = "R") -> None:
        """From now on it uses so many percent of one core."""
        self._integrate()
        self.percent, self.state = percent, state

    def fall_silent(self) -> None:
        """Neither beats nor a moving page from now on."""
        self.evidence()
        self.beats = self.ticks = False

    def _integrate(self) -> None:
        self._cpu += (self.percent or 0.0) / 100.0 * (self.clock.now - self._cpu_at)
        self._cpu_at = self.clock.now

    def evidence(self) -> RankEvidence:
        """What the edge would know of it now."""
        now = self.clock.now
        self._integrate()
        if self.beats:
            self._beat_at = _last_multiple(self.attached_at, self.beat_every, now)
        if self.page and self.ticks:
            tick = _last_multiple(self.attached_at, TICK_SECONDS, now)
            self._moved_at = max(self._moved_at, tick)
        known = self.percent is not None
        cpu = CpuSample(now, {self.process: self._cpu}, self.state) if known else None
        return RankEvidence(
            attached_at=self.attached_at,
            process=self.process,
            phase=self.phase,
            beat_at=self._beat_at,
            moved_at=self._moved_at if self.page else None,
            stepped_at=self._stepped_at,
            page_readable=self.page,
            steps=tuple(self._open),
            steps_begun=self._begun,
            steps_ended=len(self._ended),
            last_ended=tuple(self._ended[-KEPT_ENDED:]),
            leases=() if self.lease is None else (self.lease,),
            work=self.work,
            cpu=cpu,
            bye=self.bye,
            lost=self.lost,
            usual=self.usual,
        )


def _last_multiple(begin: float, every: float, now: float) -> float:
    return begin + every * int((now - begin) / every + 1e-9)


@dataclass(slots=True)
class Life:
    """One incarnation, as the edge knows it."""

    incarnation: int
    main: ProcessId
    ranks: dict[str, FakeRank] = field(default_factory=dict)
    exit: Exit | None = None
    spawn_error: str | None = None
    gone: bool = False
    """Its whole tree is confirmed gone."""

    def evidence(self) -> WorkerEvidence:
        """What the edge would hand to the judge now."""
        ranks = {name: rank.evidence() for name, rank in self.ranks.items()}
        main = None if self.spawn_error else self.main
        return WorkerEvidence(ranks, main, self.exit, self.spawn_error)


class World:
    """One worker under the loop. All instants are relative to the start of the world."""

    def __init__(
        self, policy: WorkerPolicy, on_spawn: Callable[[World], None] | None = None
    ) -> None:
        self.clock = FakeClock()
        self.began = self.clock.now
        self.policy = policy
        self.on_spawn = on_spawn
        self.bury_seconds = 0.1
        self.leftovers: frozenset[ProcessId] = frozenset()
        self.awareness = Awareness()
        self.history: list[tuple[float, Event]] = []
        self.all_lives: list[Life] = []
        self.turns = 0
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()
        self._paused_until = self.clock.now
        self._expected = self.clock.now
        self.state: WorkerState
        self._take(resume(policy, self.clock.now))

    # What a test looks at.

    @property
    def now(self) -> float:
        """Seconds since the world began."""
        return self.clock.now - self.began

    @property
    def life(self) -> Life:
        """The present, or the last, incarnation."""
        return self.all_lives[-1]

    @property
    def lives(self) -> int:
        """How many incarnations there were."""
        return len(self.all_lives)

    @property
    def lifecycle(self) -> str:
        """The state of the worker, by name."""
        return self.state.lifecycle.value

    def rank(self, name: str = "0") -> FakeRank:
        """A rank of the present life."""
        return self.life.ranks[name]

    def transitions(self) -> list[tuple[float, str, str]]:
        """(when, to which state, cause) of every transition so far."""
        return [
            (at, event.to_state, event.cause)
            for at, event in self.history
            if event.kind is Kind.TRANSITION
        ]

    def when(self, state: str) -> list[float]:
        """The instants at which it entered a state."""
        return [at for at, to, _ in self.transitions() if to == state]

    def events(self, kind: Kind) -> list[Event]:
        """All events of one kind."""
        return [event for _, event in self.history if event.kind is kind]

    # What happens in the world.

    def at(self, when: float, what: Callable[[], object], *, wakes: bool = False) -> None:
        """Let something happen at an instant; `wakes`: the edge tells the loop at once."""

        def happen() -> None:
            what()
            if wakes and self.clock.now >= self._paused_until:
                self._turn(on_time=False)

        heapq.heappush(self._agenda, (self.began + when, next(self._count), happen))

    def step(self, at: float, seconds: float, num_seqs: int | None, rank: str = "0") -> None:
        """One whole step of the life that is present when it begins."""

        def begin() -> None:
            stepping = self.rank(rank)
            number = stepping.begin(num_seqs)
            self.at(self.now + seconds, lambda: stepping.end(number))

        self.at(at, begin)

    def attach(self, name: str = "0", **facts: Any) -> FakeRank:
        """A rank's agent appears in the present life."""
        process = ProcessId(self.life.main.pid + 1 + len(self.life.ranks), 7)
        rank = FakeRank(name, self.clock, process, **facts)
        self.life.ranks[name] = rank
        return rank

    def exit(self, at: float, code: int | None = None, signal: int | None = None) -> None:
        """The main process ends; the reaper wakes the loop."""
        self.at(at, lambda: setattr(self.life, "exit", Exit(code, signal)), wakes=True)

    def command(self, at: float, word: str) -> None:
        """The operator says start, stop or restart."""
        self.at(at, lambda: self._take(command(self.state, word, self.clock.now)))

    def pause(self, at: float, seconds: float) -> None:
        """The loop stands still for a while; the worker does not."""

        def stop() -> None:
            self._paused_until = max(self._paused_until, self.clock.now + seconds)

        self.at(at, stop)

    def run(self, until: float) -> None:
        """Go on until an instant."""
        end = self.began + until
        spins = 0
        while True:
            wake = max(self._expected, self._paused_until, self.clock.now)
            agenda = self._agenda[0][0] if self._agenda else end
            if min(wake, agenda) >= end:
                self.clock.now = end
                return
            if agenda <= wake:
                spins = 0
                self.clock.now = max(self.clock.now, agenda)
                heapq.heappop(self._agenda)[2]()
            else:
                spins = spins + 1 if wake <= self.clock.now else 0
                assert spins < MOST_TURNS_AT_ONCE, "the loop spins"
                self.clock.now = wake
                self._turn(on_time=True)

    # The loop.

    def _turn(self, *, on_time: bool) -> None:
        now = self.clock.now
        self.turns += 1
        if on_time:
            self.awareness = self.awareness.woke(self._expected, now)
        evidence = self.life.evidence() if self.all_lives else WorkerEvidence()
        self._take(turn.advance(self.state, self.policy, evidence, self.awareness, now))

    def _take(self, outcome: Outcome) -> None:
        self.state = outcome.state
        self.history += [(self.now, event) for event in outcome.events]
        for action in outcome.actions:
            if isinstance(action, Spawn):
                self._spawn(action)
            else:
                self.at(self.now + self.bury_seconds, self.bury)
        self._plan()

    def _spawn(self, action: Spawn) -> None:
        assert not self.all_lives or self.life.gone, "two lives at the same time"
        pid = 1000 * (1 + len(self.all_lives))
        self.all_lives.append(Life(action.incarnation, ProcessId(pid, 7)))
        if self.on_spawn is not None:
            self.on_spawn(self)

    def bury(self) -> None:
        """Its tree has been ended, all but `leftovers`."""
        self.life.gone = not self.leftovers
        self._take(buried(self.state, self.policy, self.leftovers, self.clock.now, spread=0.0))

    def _plan(self) -> None:
        now = self.clock.now
        evidence = self.life.evidence() if self.all_lives else WorkerEvidence()
        clocks = turn.clocks_of(self.state, self.policy, evidence, self.awareness, now)
        wake = turn.next_wake(self.state, self.policy, clocks, self.awareness, now)
        wait = wake.remaining(now)
        assert wait is not None
        assert 0.0 <= wait <= turn.HEARTBEAT_SECONDS + 1e-9
        assert wake.at is not None
        assert wake.at >= now
        self._expected = wake.at


def attach_at(seconds: float, **facts: Any) -> Callable[[World], None]:
    """For `on_spawn`: rank "0" attaches so long after each spawn."""

    def on_spawn(world: World) -> None:
        life = world.life

        def attach() -> None:
            if world.life is life and life.exit is None and not life.gone:
                world.attach(**facts)

        world.at(world.now + seconds, attach, wakes=True)

    return on_spawn
