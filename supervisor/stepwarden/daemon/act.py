"""Act: start lives and end trees, each in a task of its own; nothing here holds up the loop."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from stepwarden_proto import page

from stepwarden.clock import Clock
from stepwarden.core.action import Action, Spawn
from stepwarden.core.burying import buried
from stepwarden.core.deadline import clamp_timeout
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import Exit, ProcessId
from stepwarden.core.worker import Outcome
from stepwarden.daemon.endings import Endings
from stepwarden.daemon.life import Life, new_name, number_in
from stepwarden.daemon.unit import Unit
from stepwarden.edge.agent_service import Admission
from stepwarden.edge.exit_watch import ExitWatch
from stepwarden.edge.family import Family
from stepwarden.edge.host import this_host
from stepwarden.edge.launcher import Launcher, LaunchSpec, SpawnFailed
from stepwarden.edge.life_records import LifeRecord, LifeRecords
from stepwarden.edge.page_home import make_page_dir, remove_page_dir
from stepwarden.edge.page_reader import PageReader
from stepwarden.edge.process_table import ProcessTable
from stepwarden.edge.reaper import Reaper
from stepwarden.edge.snapshots import Snapshots

SPAWN_LIMIT_SECONDS = 10.0
"""A start whose exec takes longer (dead network path, locked file) has failed."""

RETRY_FIRST_SECONDS = 1.0
RETRY_MAX_SECONDS = 30.0
"""What cannot be killed is tried again, at first often and then this often."""


class LoopPort(Protocol):
    """What acting needs of the loop."""

    def poke(self, unit: Unit | None = None) -> None:
        """Look at this worker now."""

    def apply(self, unit: Unit, outcome: Outcome, now: float) -> None:
        """Take an outcome over."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every life of this daemon shares: where agents beat to, where pages lie, base env.

    `descriptors`: how many a worker may hold open at first; None: as many as we.
    """

    agent_target: str
    page_home: Path
    environ: Mapping[str, str]
    descriptors: int | None = None


class Actor:
    """Does what the core decided."""

    def __init__(
        self,
        launcher: Launcher,
        records: LifeRecords,
        surroundings: Surroundings,
        snapshots: Snapshots,
        clock: Clock,
        note: Callable[[Event], None],
    ) -> None:
        self._launcher = launcher
        self._records = records
        self._around = surroundings
        self._clock = clock
        self._note = note
        self._tokens: dict[str, tuple[Unit, Life]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._nobodys: list[asyncio.Task[None]] = []
        home = surroundings.page_home
        self._endings = Endings(records, snapshots, clock, note, self._mains, home)
        self._watch = ExitWatch(self._rank_ended)
        self._units: dict[str, Unit] = {}
        self._loop: LoopPort | None = None
        self.reaper = Reaper(self._child_ended)

    def attach(self, loop: LoopPort, units: dict[str, Unit]) -> None:
        """Give it the loop and the workers that it acts for."""
        self._loop = loop
        self._units = units

    def take(self, unit: Unit, action: Action, now: float) -> None:
        """Begin an action; returns at once."""
        if isinstance(action, Spawn):
            self._begin_life(unit, action.incarnation, now)
        else:
            self._start_task(self._end_life(unit, self._clock.monotonic()))

    def watch(self, process: ProcessId) -> bool:
        """Hear of the end of a process; False where it has ended already. May raise OSError."""
        return self._watch.add(process)

    def observe(self, life: Life, table: ProcessTable, now: float) -> None:
        """Let a life's family take in a process snapshot."""
        if life.family is not None:
            life.family.observe(table)
            life.observed_at = now

    def admit(self, token: str) -> Admission | None:
        """Whom a token belongs to."""
        found = self._tokens.get(token)
        return None if found is None else Admission(found[1].worker, found[1].name)

    def life_of(self, worker: str, incarnation: str) -> tuple[Unit, Life] | None:
        """The worker's life of this name, if it is the present one."""
        unit = self._units.get(worker)
        if unit is None or unit.life is None or unit.life.name != incarnation:
            return None
        return unit, unit.life

    def inherit(self) -> dict[str, int]:
        """Take over the lives that an earlier daemon of this state directory did not see to their
        end; returns the workers that they belong to, each of which is to be ended before it starts,
        with its highest incarnation among them.

        Lives of workers that the configuration no longer names are ended in the background. Such
        a worker may have a new name now, so no other life begins before.
        """
        highest, nobodys = self._endings.inherit(self._units)
        for record in nobodys:
            self._nobodys.append(self._start_task(self._endings.bury_nobodys(record)))
        return highest

    def close(self) -> None:
        """Let go of descriptors."""
        self._watch.close()

    def _start_task(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._note(Event(Kind.DAEMON, f"an action failed: {type(error).__name__}: {error}"))

    def _poke(self, unit: Unit) -> None:
        if self._loop is not None:
            self._loop.poke(unit)

    # Beginning a life

    def _begin_life(self, unit: Unit, incarnation: int, now: float) -> None:
        name = new_name(unit.config.name, incarnation)
        directory = self._around.page_home / name
        pages = PageReader(directory, expect_uid=os.getuid(), not_before=now)
        life = Life(unit.config.name, incarnation, name, directory, pages, spawned_at=now)
        unit.life = life
        self._tokens[life.token] = (unit, life)
        life.spawning = self._start_task(self._spawn(unit, life))

    async def _spawn(self, unit: Unit, life: Life) -> None:
        record = LifeRecord(life.worker, life.name, str(life.page_dir), this_host().boot)
        if self._nobodys:
            await asyncio.wait(self._nobodys)
        try:
            make_page_dir(life.page_dir)
            await self._write_down(record)
            with self.reaper.expecting():
                process = await self._launcher.spawn(self._spec(unit, life), SPAWN_LIMIT_SECONDS)
                self._born(life, process)
        except (SpawnFailed, OSError, ValueError) as error:
            life.spawn_error = str(error)
        else:
            self._poke(unit)
            await self._write_down(_with_process(record, process))
        self._poke(unit)

    async def _write_down(self, record: LifeRecord) -> None:
        """Note a life for the next daemon. A full or broken disk stops no worker from starting."""
        try:
            await asyncio.to_thread(self._records.write, record)
        except (OSError, RuntimeError) as error:  # RuntimeError: no thread to be had
            text = f"this life could not be noted in the state directory ({error}):"
            text += " a daemon that comes after a crash of this one would not know of it"
            number = str(number_in(record.incarnation))
            self._note(Event(Kind.DAEMON, text, record.worker, number))

    def _born(self, life: Life, process: ProcessId) -> None:
        life.family = Family(process, life.name, life.page_dir, self._mains, self._endings.traces)
        life.main = process
        life.exit = self.reaper.exit_of(process)
        number = str(life.incarnation)
        text = f"pid {process.pid} runs"
        data = {"pid": process.pid}
        self._note(Event(Kind.STARTED, text, life.worker, number, data=data))

    def _spec(self, unit: Unit, life: Life) -> LaunchSpec:
        config = unit.config
        environment = config.environment(self._around.environ)
        environment |= {
            page.ENV_WORKER: life.worker,
            page.ENV_INCARNATION: life.name,
            page.ENV_TARGET: self._around.agent_target,
            page.ENV_TOKEN: life.token,
            page.ENV_PAGE_DIR: str(life.page_dir),
            page.ENV_INTERVAL: f"{config.heartbeat_interval:g}",
        }
        output = None if config.output.path is None else str(config.output.path)
        limit = self._around.descriptors
        return LaunchSpec(config.argv, environment, config.cwd, output, limit)

    def _mains(self) -> set[int]:
        lives = (unit.life for unit in self._units.values())
        return {life.main.pid for life in lives if life is not None and life.main is not None}

    # Ends

    def _child_ended(self, pid: int, how: Exit) -> None:
        for unit in self._units.values():
            life = unit.life
            if life is None or life.main is None or life.exit is not None:
                continue
            if life.main.pid == pid:
                life.exit = how
                self._poke(unit)
                return

    def _rank_ended(self, process: ProcessId) -> None:
        for unit in self._units.values():
            life = unit.life
            if life is None:
                continue
            for memory in life.ranks.values():
                if memory.process == process:
                    memory.lost = True
                    self._poke(unit)

    async def _end_life(self, unit: Unit, ordered_at: float) -> None:
        life = unit.life
        if life is not None and life.spawning is not None and not life.spawning.done():
            await asyncio.wait({life.spawning})
            ordered_at = self._clock.monotonic()
        families = self._endings.families(unit)
        left = await self._endings.bury(unit, families, unit.config.stop_grace, ordered_at)
        pause = RETRY_FIRST_SECONDS
        while left:
            self._buried(unit, left)
            await asyncio.sleep(clamp_timeout(pause) or 0.0)
            pause = min(2 * pause, RETRY_MAX_SECONDS)
            left = await self._endings.bury(unit, families, 0.0, self._clock.monotonic())
        if life is not None:
            await self._close_life(unit, life)
        self._endings.forget_inherited(unit.config.name)
        self._buried(unit, frozenset())

    async def _close_life(self, unit: Unit, life: Life) -> None:
        self._tokens.pop(life.token, None)
        for memory in life.ranks.values():
            if memory.process is not None:
                self._watch.drop(memory.process)
        life.pages.close()
        remove_page_dir(life.page_dir)  # before its note, which leads the next daemon to it
        # In a thread: the state directory may lie on a disk that does not answer.
        with suppress(RuntimeError):  # no thread to be had: a note too many does no harm
            await asyncio.to_thread(self._records.remove, life.name)
        unit.life = None

    def _buried(self, unit: Unit, left: frozenset[ProcessId]) -> None:
        now = self._clock.monotonic()
        spread = random.uniform(-1.0, 1.0)
        outcome = buried(unit.state, unit.policy, left, now, spread)
        if self._loop is not None:
            self._loop.apply(unit, outcome, now)
        self._poke(unit)


def _with_process(record: LifeRecord, process: ProcessId) -> LifeRecord:
    return LifeRecord(
        record.worker,
        record.incarnation,
        record.page_dir,
        record.boot_id,
        process.pid,
        process.start_ticks,
    )
