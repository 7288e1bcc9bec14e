"""Takes stock when the daemon starts: which lives of an earlier one go on, which are to be ended.

Three sources tell of lives, so that none is lost with one of them: the state store, the transient
units that systemd holds for us, and processes that carry the marks of a worker of ours.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from stepwarden.clock import Clock
from stepwarden.config import WorkerConfig
from stepwarden.config.difference import differing_marks, process_marks
from stepwarden.core.clocks import Cause
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import Exit, ProcessId
from stepwarden.core.lifecycle import State
from stepwarden.core.memory import Kept
from stepwarden.core.resume import Found
from stepwarden.daemon.act import Actor
from stepwarden.daemon.attach_runner import AWAITED
from stepwarden.daemon.endings import Endings
from stepwarden.daemon.life import Life, number_in
from stepwarden.daemon.runners import ATTACH, SPAWN, UNIT, Runners
from stepwarden.daemon.unit import Unit
from stepwarden.edge.launcher import SpawnFailed
from stepwarden.edge.page_reader import PageReader
from stepwarden.edge.process_probe import alive
from stepwarden.edge.state_records import LifeRecord
from stepwarden.edge.users import known_users

_SETTLED = frozenset({State.STOPPED, State.FAILED, State.RESTARTING})
"""A life that is on record for a worker kept in one of these is one that could not be ended."""


@dataclass(slots=True)
class Stock:
    """What was found. `nobodys`: lives of workers that the configuration does not name."""

    lives: dict[str, LifeRecord] = field(default_factory=dict)
    rest: dict[str, list[LifeRecord]] = field(default_factory=dict)
    nobodys: list[LifeRecord] = field(default_factory=list)

    def highest(self, worker: str) -> int:
        """The highest incarnation of this worker among them; 0 for none."""
        records = [*self.rest.get(worker, ())]
        if worker in self.lives:
            records.append(self.lives[worker])
        return max((number_in(record.incarnation) for record in records), default=0)

    def found(self, worker: str) -> Found:
        """What there is of this worker."""
        if worker in self.lives:
            return Found.LIFE
        return Found.REST if worker in self.rest else Found.NOTHING


def take_stock(
    records: Iterable[LifeRecord], units: Mapping[str, Unit], kept: Mapping[str, Kept | None]
) -> Stock:
    """Sort the lives on record: the youngest of each worker may go on, what is older is ended.

    A life of which no process was ever known had not been started yet when the daemon died; what
    there may be of it is ended. So is one of a worker that had settled: it was being ended. And so
    is one of another shape than the configuration has now: nothing could judge or end it rightly.
    """
    stock = Stock()
    for record in sorted(records, key=lambda found: number_in(found.incarnation)):
        unit = units.get(record.worker)
        if unit is None or _let_go(record, unit.config):
            stock.nobodys.append(record)
            continue
        older = stock.lives.pop(record.worker, None)
        if older is not None:
            stock.rest.setdefault(record.worker, []).append(older)
        if _fits(record, unit.config) and _can_go_on(record, kept.get(record.worker)):
            stock.lives[record.worker] = record
        else:
            stock.rest.setdefault(record.worker, []).append(record)
    return stock


def _let_go(record: LifeRecord, config: WorkerConfig) -> bool:
    """What somebody else started is theirs once the worker is ours to start."""
    return record.runner == ATTACH and config.attach is None


def _fits(record: LifeRecord, config: WorkerConfig) -> bool:
    """Whether the worker is still of the shape that this life was started in."""
    if config.attach is not None or record.runner == ATTACH:
        return config.attach is not None and record.runner == ATTACH
    if config.unit is not None or record.runner == UNIT:
        return record.runner == UNIT and record.unit == config.unit
    return True


def _can_go_on(record: LifeRecord, kept: Kept | None) -> bool:
    settled = kept is not None and kept.lifecycle in _SETTLED and kept.cause != Cause.PLATFORM
    if settled and kept is not None and number_in(record.incarnation) <= kept.incarnation:
        return False
    return record.pid > 0 or record.runner == ATTACH


class Adoption:
    """Makes lives of records, and hands them to the actor."""

    def __init__(
        self, actor: Actor, endings: Endings, runners: Runners, note: Callable[[Event], None]
    ) -> None:
        self._actor = actor
        self._endings = endings
        self._runners = runners
        self._note = note

    async def prepare(self, stock: Stock, unit: Unit) -> None:
        """Take over the life that goes on, and note what is to be ended first."""
        name = unit.config.name
        for old in stock.rest.get(name, ()):
            self._endings.end_first(old)
        record = stock.lives.get(name)
        if record is None:
            return
        life = _life_of(record)
        if life.main is not None and not alive(life.main):
            life.exit = await self._runners.exit_of(life) or Exit()
        try:
            await self._runners.by_kind(life.runner).resume(life, unit.config)
        except SpawnFailed as error:
            self._note(Event(Kind.DAEMON, str(error), name, str(life.incarnation)))
        self._actor.adopt(unit, life, record)
        if record.marks:
            life.outdated = differing_marks(record.marks, process_marks(unit.config))

    def tell(self, unit: Unit) -> None:
        """Say which process goes on, of a worker that has been adopted."""
        life = unit.life
        if life is None or unit.state.lifecycle is not State.ADOPTED:
            return
        pid = life.main.pid if life.main is not None else None
        text = "an earlier daemon's life is taken over" + (f": pid {pid}" if pid else "")
        data = {"pid": pid}
        number = str(life.incarnation)
        self._note(Event(Kind.STARTED, text, life.worker, number, data=data))


def _life_of(record: LifeRecord) -> Life:
    directory = Path(record.page_dir)
    pages = PageReader(directory, expect_uid=_owner(directory), not_before=record.spawned_at)
    life = Life(
        record.worker,
        number_in(record.incarnation),
        record.incarnation,
        directory,
        pages,
        record.token,
        record.spawned_at,
    )
    life.runner = record.runner or SPAWN
    life.unit, life.cgroup = record.unit, record.cgroup
    life.launching, life.marks = True, record.marks
    if record.pid:
        life.main = ProcessId(record.pid, record.start_ticks)
    elif record.runner == ATTACH:
        life.held = AWAITED
    return life


def _owner(directory: Path) -> int | None:
    try:
        return directory.stat().st_uid
    except OSError:
        return None


class TrustedUsers:
    """As which users the workers run. One that the configuration does not name may run as any.

    Asks the host for them: may block for as long as `known_users`.
    """

    def __init__(self, workers: Iterable[WorkerConfig], clock: Clock) -> None:
        user_of = {worker.name: worker.run_as.user for worker in workers}
        known = known_users(user_of.values(), clock)
        # A user that the host does not know has no process.
        self._of_worker = {name: known[user] for name, user in user_of.items() if user in known}
        self._all = {os.geteuid(), *self._of_worker.values()}

    def trusted(self, worker: str, uid: int) -> bool:
        """Whether a process of this user may be one of that worker."""
        own = self._of_worker.get(worker)
        return uid in self._all if own is None else uid == own


def with_launched(records: Iterable[LifeRecord], ended: Collection[ProcessId]) -> list[LifeRecord]:
    """Lives whose main process had begun, but was not noted as such: its launcher has become it.

    `ended`: launchers that had not become anything, and have been told to end.
    """

    def told(record: LifeRecord) -> LifeRecord:
        launcher = ProcessId(record.launcher_pid, record.launcher_ticks)
        if record.pid or not launcher.pid or launcher in ended or not alive(launcher):
            return record
        return replace(record, pid=launcher.pid, start_ticks=launcher.start_ticks)

    return [told(record) for record in records]


def with_strays(records: Iterable[LifeRecord], strays: Iterable[LifeRecord]) -> list[LifeRecord]:
    """All lives on record and those that only their processes or units tell of."""
    known = {record.incarnation: record for record in records}
    for stray in strays:
        record = known.get(stray.incarnation)
        if record is None:
            known[stray.incarnation] = stray
        elif not record.pid or not record.token:
            # The daemon died between the start and the note of its pid, or only systemd knows it.
            known[stray.incarnation] = replace(
                record,
                pid=record.pid or stray.pid,
                start_ticks=record.start_ticks or stray.start_ticks,
                token=record.token or stray.token,
                page_dir=record.page_dir if record.token else stray.page_dir,
                cgroup=record.cgroup or stray.cgroup,
                unit=record.unit or stray.unit,
            )
    return list(known.values())
