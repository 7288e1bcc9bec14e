"""The made-up part of `Chaos`: pages and processes of ranks, and the policies it draws from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from stepwarden.core.budget import Formula, Rows
from stepwarden.core.evidence import (
    EndedStep,
    Lease,
    Step,
    Work,
)
from stepwarden.core.heartbeat import BeatFacts, LeaseFacts, OpenStepFacts, WorkFacts
from stepwarden.core.policy import (
    AGENT_NONE,
    AGENT_OPTIONAL,
    HardCaps,
    RestartPolicy,
    WorkerPolicy,
)
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
    drain=4.0,
    expect_external=8.0,
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
    replace(_BASE, agent=AGENT_NONE, probed=True, progress_budget=3.0),
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
    phase_since: float = 0.0
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
            phase_since=self.phase_since or self.attached,
            lease=self.lease,
            work=self.work,
            steps=tuple(self.open),
            steps_begun=self.begun,
            last_ended=tuple(self.ended[-8:]),
            overflows=0,
            clamped=0,
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
            phase_since=self.phase_since or self.attached,
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
