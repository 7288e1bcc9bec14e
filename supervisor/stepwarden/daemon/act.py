"""Act: start lives and end trees, each in a task of its own; nothing here holds up the loop."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from stepwarden.core.action import Action, Spawn
from stepwarden.core.burying import ALL_GONE, buried
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import ProcessId
from stepwarden.core.lifecycle import State
from stepwarden.core.worker import Outcome
from stepwarden.daemon.attached import out_of_reach
from stepwarden.daemon.end_of_life import EndOfLife
from stepwarden.daemon.endings import Endings
from stepwarden.daemon.exits import Exits
from stepwarden.daemon.families import Families
from stepwarden.daemon.grouping import Groups
from stepwarden.daemon.hooks import Hooks
from stepwarden.daemon.life import Life, new_name
from stepwarden.daemon.pauses import Pauses
from stepwarden.daemon.runners import ATTACH, SPAWN, Runners
from stepwarden.daemon.starting import Starter, record_of
from stepwarden.daemon.unit import Unit
from stepwarden.daemon.watching import Watching
from stepwarden.edge.agent_service import Admission
from stepwarden.edge.begun import Begun
from stepwarden.edge.page_reader import PageReader
from stepwarden.edge.process_table import ProcessTable
from stepwarden.edge.state_records import LifeRecord


class LoopPort(Protocol):
    """What acting needs of the loop."""

    def poke(self, unit: Unit | None = None) -> None:
        """Look at this worker now."""

    def apply(self, unit: Unit, outcome: Outcome, now: float) -> None:
        """Take an outcome over."""


class Actor:
    """Does what the core decided."""

    def __init__(
        self,
        units: Mapping[str, Unit],
        runners: Runners,
        families: Families,
        endings: Endings,
        exits: Exits,
        watching: Watching,
        page_home: Path,
        hooks: Hooks,
    ) -> None:
        self._units = units
        self._runners = runners
        self._families = families
        self._endings = endings
        self._watching = watching
        self._tasks = hooks.tasks
        self._clock = hooks.clock
        self._note = hooks.note
        self._page_home = page_home
        self._tokens: dict[str, tuple[Unit, Life]] = {}
        self._loop: LoopPort | None = None
        self._starter: Starter | None = None
        self._groups: Groups | None = None
        self.exits = exits

    def attach(self, loop: LoopPort, starter: Starter, groups: Groups | None = None) -> None:
        """Give it the loop, what starts lives, and what counts the deaths of groups."""
        self._loop = loop
        self._groups = groups
        self._starter = starter
        starter.born = self.born

    def take(self, unit: Unit, action: Action, now: float) -> None:
        """Begin an action; returns at once."""
        if isinstance(action, Spawn):
            self._begin_life(unit, action.incarnation, now)
        else:
            self._tasks.start(self._end_life(unit))

    def watch(self, process: ProcessId) -> bool:
        """Hear of the end of a process; False where it has ended already. May raise OSError."""
        return self.exits.watch_rank(process)

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

    def poke(self, unit: Unit) -> None:
        """Make the loop look at this worker."""
        if self._loop is not None:
            self._loop.poke(unit)

    # Beginning a life

    def _begin_life(self, unit: Unit, incarnation: int, now: float) -> None:
        assert self._starter is not None
        name = new_name(unit.config.name, incarnation)
        if unit.life is not None:
            self.let_go(unit, unit.life)
        kind = self._runners.kind_for(unit.config)
        directory = self._runners.pages_of(kind, unit.config.name) or self._page_home / name
        pages = PageReader(directory, expect_uid=os.geteuid(), not_before=now)
        life = Life(unit.config.name, incarnation, name, directory, pages, spawned_at=now)
        life.runner, life.dismissed = kind, unit.dismissed
        self._own(unit, life)
        life.spawning = self._tasks.start(self._starter.start(unit, life))

    def _own(self, unit: Unit, life: Life) -> None:
        unit.life = life
        if life.token:
            self._tokens[life.token] = (unit, life)

    def born(self, unit: Unit, life: Life, begun: Begun) -> None:
        """It runs now (or its invitation lies there)."""
        life.main, life.unit = begun.main, begun.unit or life.unit
        life.cgroup = begun.cgroup or life.cgroup
        life.family = self._families.of_life(life)
        life.pages.expect(_owner_of(life.page_dir))
        if life.runner == ATTACH:
            return
        if life.runner == SPAWN and life.main is not None:
            life.exit = self.exits.reaper.exit_of(life.main)
        else:
            self.exits.watch_main(unit, life)
        pid = life.main.pid if life.main is not None else None
        where = f" in {life.unit}" if life.unit else ""
        text = f"pid {pid} runs{where}" if pid else f"{life.unit} was started and has ended again"
        self._tell(life, text, Kind.STARTED, pid=pid)

    def adopt(self, unit: Unit, life: Life, record: LifeRecord) -> None:
        """Take over a life that an earlier daemon started."""
        assert self._starter is not None
        life.adopted = True
        life.family = self._families.of_record(record)
        self._own(unit, life)
        if life.runner != ATTACH or life.main is not None:
            self.exits.watch_main(unit, life)
        self._tasks.start(self._starter.note_adopted(life))
        self._tasks.start(self._starter.watch_again(unit, life))

    def note_arrival(self, unit: Unit, life: Life, now: float) -> None:
        """An attached worker is there as soon as any of its agents is."""
        if life.runner != ATTACH or life.family is None or not life.ranks:
            return
        assert self._starter is not None
        if not life.arrived:
            life.arrived = True
            if life.held:
                life.held, life.began_at = "", now
            if not life.adopted:  # else it is looked at already
                self._tasks.start(self._starter.watch_again(unit, life))
        ours = [m.process for m in life.ranks.values() if m.process is not None]
        if life.main is not None or not ours:
            return  # of another pid namespace its page and beats are all there is
        life.main = ours[0]
        life.family = self._families.of_life(life)
        for process in ours:
            life.family.adopt(process)
        self.exits.watch_main(unit, life)
        self._tasks.start(self._starter.write_down(life))

    def follow(self, unit: Unit, _outcome: Outcome, _now: float) -> None:
        """A worker that was awaited in vain and is stopped is not awaited any more."""
        state, life = unit.state, unit.life
        stopped = state.lifecycle is State.STOPPED and not state.leftovers
        if stopped and life is not None and life.runner == ATTACH:
            self.let_go(unit, life)

    def let_go(self, unit: Unit, life: Life) -> None:
        """This life is over, and there is nothing of it to be ended."""
        self._runners.withdraw(life.worker)
        if life.spawning is not None:
            life.spawning.cancel()
        self._drop(life)
        unit.life = None
        self._tasks.start_owed(self._endings.forget(record_of(life)))

    def _tell(self, life: Life, text: str, kind: Kind, **data: float | int | str | None) -> None:
        self._note(Event(kind, text, life.worker, str(life.incarnation), data=data))

    # Ending a life

    async def _end_life(self, unit: Unit) -> None:
        """A fault of ours on the way must not leave it half ended for ever."""
        assert self._starter is not None
        ending = EndOfLife(
            unit,
            self._starter,
            self._runners,
            self._endings,
            self._watching,
            self._clock,
            self._note,
            lambda left: self._buried(unit, left),
            lambda life: self._close_life(unit, life),
        )
        pauses, said = Pauses(), ""
        while True:
            try:
                await ending.run()
                break
            except Exception as error:
                text = f"ending it failed, tried again: {type(error).__name__}: {error}"
                if text != said:
                    self._note(Event(Kind.BURIAL, text, unit.config.name, unit.state.life))
                said = text
                await pauses.wait()
                ending.ordered_anew()
        self._buried(unit, frozenset(), ending.gone)

    async def _close_life(self, unit: Unit, life: Life) -> None:
        unit.dismissed = frozenset()
        if unit.state.lifecycle is State.DEAD:
            unit.dismissed = out_of_reach(life) | life.dismissed
        self._drop(life)
        await self._endings.forget(record_of(life))
        unit.life = None

    def _drop(self, life: Life) -> None:
        self._tokens.pop(life.token, None)
        self._watching.end(life)
        if life.log is not None:
            self._tasks.start(life.log.close())
        self.exits.drop(life)
        life.pages.close()

    def _buried(self, unit: Unit, left: frozenset[ProcessId], gone: str = ALL_GONE) -> None:
        now = self._clock.monotonic()
        spread = random.uniform(-1.0, 1.0)
        group = None if self._groups is None else self._groups.ledger(unit.config.name)
        outcome = buried(unit.state, unit.policy, left, now, spread, gone, group)
        if self._loop is not None:
            self._loop.apply(unit, outcome, now)
        self.poke(unit)


def _owner_of(directory: Path) -> int | None:
    try:
        return os.stat(directory).st_uid
    except OSError:
        return os.geteuid()
