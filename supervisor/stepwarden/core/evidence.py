"""What is known now: plain facts that the edge gathered, without any judgement.

Every instant is in seconds on the supervisor's own monotonic clock; the edge has already placed
stamps of foreign clocks there. `None` means unknown, which is never the same as zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stepwarden_proto.page import STARTUP_PHASES

from stepwarden.core.facts import RankFacts
from stepwarden.core.progress_seen import ProgressSeen
from stepwarden.core.stacks import StackDiff
from stepwarden.core.starved import NOT_STARVED, Starved
from stepwarden.core.usual import Usual

DRAINING = "draining"


@dataclass(frozen=True, slots=True, order=True)
class ProcessId:
    """A process for as long as it lives: pid and start time in clock ticks since boot."""

    pid: int
    start_ticks: int


@dataclass(frozen=True, slots=True)
class Step:
    """One step in flight. Counts are None where the engine did not say or said nonsense."""

    number: int
    begin: float
    num_seqs: int | None = None
    num_tokens: int | None = None
    phase: str = "unknown"


@dataclass(frozen=True, slots=True)
class EndedStep:
    """One step that ended; `seconds` is its length, None where its end was not stamped."""

    number: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Lease:
    """A declared long operation. `end` is None while it is held."""

    name: str
    begin: float
    seconds: float
    end: float | None = None


@dataclass(frozen=True, slots=True)
class Work:
    """What an engine core knows of its queue. `since`: when `unfinished` last rose from 0."""

    unfinished: int
    since: float
    loop_turns: int
    loop_at: float


@dataclass(frozen=True, slots=True)
class CpuSample:
    """CPU seconds (user + system) of one rank's process and its own descendants at one instant.

    `seconds` maps each process to its total. `state` is the rank process's letter from /proc
    ("R", "S", "D", "T", "Z", ...), None where it could not be read.
    """

    at: float
    seconds: Mapping[ProcessId, float]
    state: str | None = None


@dataclass(frozen=True, slots=True)
class Exit:
    """How a process ended: an exit code, or a signal number; both None where nobody can know.

    `oom`: the kernel's counter says that memory ran out in its control group.
    """

    code: int | None = None
    signal: int | None = None
    oom: bool = False


@dataclass(frozen=True, slots=True)
class RankEvidence:
    """What is known of one rank of the present incarnation.

    `beat_at`: when the last beat arrived. `moved_at`: when its page was last seen to move (tick,
    step begun or ended); None without a readable page. `stepped_at`: when a step was last seen to
    begin or end. `bye`: it said a clean end.
    `lost`: its process ended; with `bye` that is a clean end. `leases`: the newest few of its
    process, the oldest first; at most one is still held. `usual`: what was learned of its steps;
    None: nothing yet, or nothing is learned. `ticked_at`: when its beat thread last ticked on the
    page; None where it never did. `facts`, `facts_before`: the two newest readings of what the
    kernel says of it, taken only while it is late or about to be.
    """

    attached_at: float
    process: ProcessId | None = None
    phase: str = "unknown"
    phase_since: float | None = None
    beat_at: float | None = None
    moved_at: float | None = None
    stepped_at: float | None = None
    page_readable: bool = False
    steps: tuple[Step, ...] = ()  # open ones, the oldest first
    steps_begun: int = 0
    steps_ended: int = 0
    last_ended: tuple[EndedStep, ...] = ()  # the newest few, the oldest first
    leases: tuple[Lease, ...] = ()
    work: Work | None = None
    cpu: CpuSample | None = None
    bye: bool = False
    lost: bool = False
    usual: Usual | None = None
    ticked_at: float | None = None
    facts: RankFacts | None = None
    facts_before: RankFacts | None = None

    @property
    def oldest(self) -> Step | None:
        """The step whose deadline counts; None when nothing is in flight."""
        return self.steps[0] if self.steps else None

    @property
    def later_ended(self) -> int:
        """How many steps that began after the oldest open one have ended, as far as is known."""
        oldest = self.oldest
        if oldest is None:
            return 0
        seen = sum(ended.number > oldest.number for ended in self.last_ended)
        # All that are older than the oldest open one have ended too.
        return max(seen, self.steps_ended - (oldest.number - 1))

    @property
    def lease(self) -> Lease | None:
        """The lease that is held now."""
        for lease in self.leases:
            if lease.end is None:
                return lease
        return None

    @property
    def starting_up(self) -> bool:
        """True while it loads, compiles or warms up."""
        return self.phase in STARTUP_PHASES

    @property
    def working(self) -> bool:
        """True while something is in flight: a step, requests, a start, a declared operation."""
        waits = self.work is not None and self.work.unfinished > 0
        return bool(self.steps) or self.lease is not None or self.starting_up or waits

    @property
    def draining(self) -> bool:
        """True while it finishes what it has and takes nothing new."""
        return self.phase == DRAINING


@dataclass(frozen=True, slots=True)
class WorkerEvidence:
    """What is known of one worker's present incarnation.

    `exit`: its main process ended so. `spawn_error`: it could not be started, and why.
    `tree`: CPU of the whole tree, for causes that belong to no rank. `held`: why it has not been
    started yet (another worker, a gate, the platform), "" once it was; `shut`: why it will not be.
    `spawned_at`: when it was started, where that was later than its life began. `probe_ok`: the
    probe of its own port has passed. `progress`: what its own counters show; None: none is read.
    `facts`, `facts_before`: as of a rank, of its main process. `oom_kills`: how many processes of
    this host the kernel has killed in the last seconds because memory ran out; looked up only
    where something of it has ended.
    `starved`: the time that it could not use.
    `stacks`: what two looks at the stacks of a rank came to, by its name; "" for all of them.
    """

    ranks: Mapping[str, RankEvidence] = field(default_factory=dict)
    main: ProcessId | None = None
    exit: Exit | None = None
    spawn_error: str | None = None
    tree: CpuSample | None = None
    held: str = ""
    shut: str = ""
    spawned_at: float | None = None
    probe_ok: bool = False
    progress: ProgressSeen | None = None
    facts: RankFacts | None = None
    facts_before: RankFacts | None = None
    oom_kills: int = 0
    starved: Starved = NOT_STARVED
    stacks: Mapping[str, StackDiff] = field(default_factory=dict)
