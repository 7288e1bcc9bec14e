"""One incarnation of a worker: everything that belongs to this life and must end with it."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from stepwarden.config import WorkerConfig
from stepwarden.core.evidence import CpuSample, Exit, ProcessId
from stepwarden.core.facts import RankFacts
from stepwarden.core.heartbeat import RankBeats
from stepwarden.core.progress_seen import ProgressSeen
from stepwarden.core.stacks import StackDiff
from stepwarden.core.usual import Usual
from stepwarden.daemon.leases import Noted
from stepwarden.daemon.lesson import Lesson
from stepwarden.daemon.starved_memory import StarvedMemory
from stepwarden.daemon.step_reader import StepReader
from stepwarden.edge.aside import Aside
from stepwarden.edge.family import Family
from stepwarden.edge.page_reader import PageReader, PageView

TwoFacts = tuple[RankFacts | None, RankFacts | None]
NO_FACTS: TwoFacts = (None, None)


class Watcher(Protocol):
    """What looks at a life from outside in a task of its own: a probe, a scrape."""

    def start(self) -> None:
        """Begin."""

    async def close(self) -> None:
        """Look no more."""


@dataclass(slots=True)
class Reading:
    """How the kernel's facts of one life are read. `asked`: when the last reading began."""

    aside: Aside | None = None
    asked: float | None = None
    under_way: bool = False


@dataclass(slots=True)
class RankMemory:
    """What has to be remembered of one rank between two turns. Instants in monotonic seconds.

    `left`: its page seems to be left by a process that ended: what is open on it proves nothing.
    `usual`: what was learned of its steps; `lesson`: how that goes on; `reader`: tells of them.
    `facts`: the two newest readings of what the kernel says of it, the older one first.
    """

    attached_at: float
    beats: RankBeats | None = None
    page: PageView | None = None
    page_marks: tuple[int, ...] = ()
    moved_at: float | None = None
    stepped_at: float | None = None
    leases: Noted = ()
    process: ProcessId | None = None
    lost: bool = False
    cpu: CpuSample | None = None
    cpu_percent: float | None = None
    announced: bool = False
    parted: bool = False
    left: bool = False
    facts: TwoFacts = NO_FACTS
    usual: Usual | None = None
    reader: StepReader = field(default_factory=StepReader)
    lesson: Lesson | None = None


@dataclass(slots=True)
class Life:
    """One incarnation: its identity, its processes, and what its agents have said.

    `incarnation` counts the lives of this worker, on over restarts of the daemon while its state
    directory is kept; `name` is unique for ever. `main` and `family` are None until
    it has been started. `runner`: the kind of what runs it; `unit`: its systemd unit, "" for none.
    `held`: why it is not started yet; `shut`: why it will not be; `began_at`: when it was, where
    that was later than its life began. `launching`: what follows in its start cannot be taken back.
    `adopted`: an earlier daemon started it, so it is no child of ours. `config`: with variables and
    env files as they were at its start; None where that is not known. `marks`: the
    same, as it is noted. `outdated`: the keys that its process does not have as the file has them
    now; () for none. `taught_at`: when its steps were last learned from; `unteachable`: a fault of
    ours forbids it. `starving`: what it could not use of its time. `log`: what watches over its log
    process. Of an attached one:
    `arrived`: somebody came; `dismissed`: who may not, by pid and start time in its own namespace.
    `refused`: ranks whose page is not believed, already told of. `watched`: every process that was
    ever one of its ranks, whose end is heard of. `launcher`: the process that is about to become
    its main one. `stacks`: what two looks at the stacks of each rank came to, while it is under
    suspicion; "" for all of them.
    """

    worker: str
    incarnation: int
    name: str
    page_dir: Path
    pages: PageReader
    token: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    spawned_at: float = 0.0
    main: ProcessId | None = None
    launcher: ProcessId | None = None
    family: Family | None = None
    exit: Exit | None = None
    spawn_error: str | None = None
    spawning: asyncio.Task[None] | None = None
    ranks: dict[str, RankMemory] = field(default_factory=dict)
    watched: set[ProcessId] = field(default_factory=set)
    tree_cpu: CpuSample | None = None
    tree_facts: TwoFacts = NO_FACTS
    reading: Reading = field(default_factory=Reading)
    observed_at: float | None = None
    runner: str = ""
    unit: str = ""
    cgroup: str = ""
    held: str = ""
    shut: str = ""
    began_at: float | None = None
    launching: bool = False
    adopted: bool = False
    arrived: bool = False
    dismissed: frozenset[ProcessId] = frozenset()
    refused: set[str] = field(default_factory=set)
    probe_ok: bool = False
    progress: ProgressSeen | None = None
    watchers: list[Watcher] = field(default_factory=list)
    log: Watcher | None = None
    config: WorkerConfig | None = None
    marks: str = ""
    outdated: tuple[str, ...] = ()
    taught_at: float | None = None
    unteachable: bool = False
    starving: StarvedMemory = field(default_factory=StarvedMemory)
    stacks: dict[str, StackDiff] = field(default_factory=dict)


def new_name(worker: str, incarnation: int) -> str:
    """A name that no other life of any daemon has had."""
    return f"{worker}.{incarnation}.{secrets.token_hex(4)}"


def number_in(name: str) -> int:
    """The incarnation that a name of `new_name` holds; 0 where it holds none."""
    number = name.split(".")[-2:-1]
    return int(number[0]) if number and number[0].isdecimal() else 0
