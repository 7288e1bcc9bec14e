"""Ending trees: of the present life of a worker, and of what an earlier daemon left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

from stepwarden.clock import Clock
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import ProcessId
from stepwarden.daemon.families import Families
from stepwarden.daemon.runners import ATTACH, Runners, RunnerTrouble
from stepwarden.daemon.unit import Unit
from stepwarden.edge.burial import bury, still_there
from stepwarden.edge.family import Family
from stepwarden.edge.page_home import remove_page_dir, remove_page_home
from stepwarden.edge.snapshots import Snapshots
from stepwarden.edge.state_records import LifeRecord
from stepwarden.edge.state_store import StateStore

KILL_WAIT_SECONDS = 10.0
"""How long after KILL a process may still be there before it counts as unkillable."""

LEFT_BEHIND = "left behind by an earlier daemon: "

Whose = list[tuple[Family, str]]
"""Families to end, each with the words that say whose they are."""


async def _nothing(_: Unit) -> None:
    """Where there is nothing to do first."""


class Endings:
    """Ends whole trees and confirms that they are gone; knows what was left behind.

    `page_home`: where pages of this daemon lie.
    """

    def __init__(
        self,
        families: Families,
        runners: Runners,
        store: StateStore,
        snapshots: Snapshots,
        clock: Clock,
        note: Callable[[Event], None],
        page_home: Path,
    ) -> None:
        self._families = families
        self._runners = runners
        self._store = store
        self._snapshots = snapshots
        self._clock = clock
        self._note = note
        self._page_home = page_home
        self._inherited: dict[str, list[LifeRecord]] = {}
        self.before: Callable[[Unit], Awaitable[None]] = _nothing
        """Done before a worker's tree is ended, within a limit of its own."""

    def end_first(self, record: LifeRecord) -> None:
        """This life of a worker was left behind and is ended with the next burial of it."""
        self._inherited.setdefault(record.worker, []).append(record)

    def inherited(self, worker: str) -> list[LifeRecord]:
        """What was left behind of this worker and is not confirmed gone."""
        return list(self._inherited.get(worker, []))

    def families(self, unit: Unit) -> Whose:
        """Whom to end for this worker: its present life, and what was left behind of it."""
        inherited = self._inherited.get(unit.config.name, [])
        found = [(self._families.of_record(record), LEFT_BEHIND) for record in inherited]
        if unit.life is not None and unit.life.family is not None:
            found.append((unit.life.family, ""))
        return found

    async def bury(
        self, unit: Unit, families: Whose, grace: float, ordered_at: float
    ) -> frozenset[ProcessId]:
        """End all of them at once; returns what cannot be ended."""
        ends = (self._end(unit, family, whose, grace, ordered_at) for family, whose in families)
        return frozenset().union(*await asyncio.gather(*ends))

    async def left_alone(self, unit: Unit, families: Whose) -> frozenset[ProcessId]:
        """Who of them is still there; nobody is signalled."""
        looks = (
            still_there(family, self._clock, self._reporter(unit, whose), self._snapshots)
            for family, whose in families
        )
        return frozenset().union(*await asyncio.gather(*looks))

    async def bury_nobodys(self, record: LifeRecord) -> None:
        """End the life of a worker that the configuration no longer names.

        One that something else started is let go.
        """
        if record.runner == ATTACH:
            self._runners.withdraw(record.worker)
            await self.forget(record)
            return

        def report(sentence: str) -> None:
            self._note(Event(Kind.BURIAL, LEFT_BEHIND + sentence, record.worker))

        family, wait = self._families.of_record(record), KILL_WAIT_SECONDS
        shared = self._snapshots
        if not await bury(family, wait, wait, self._clock, report, snapshots=shared):
            await self.forget(record)

    async def forget_inherited(self, worker: str) -> None:
        """All that was left behind of this worker is gone."""
        for record in self._inherited.pop(worker, []):
            await self.forget(record)

    async def forget(self, record: LifeRecord) -> None:
        """Every process of this life is gone: its pages and its note go too."""
        directory = Path(record.page_dir)
        if record.page_dir and record.runner != ATTACH:
            remove_page_dir(directory)
            if directory.parent != self._page_home:
                remove_page_home(directory.parent)
        try:
            await self._runners.tidy(record.runner, record.unit)
        except RunnerTrouble as trouble:
            self._note(Event(Kind.BURIAL, str(trouble), record.worker))
        await self._store.forget_life(record.incarnation)

    async def _end(
        self, unit: Unit, family: Family, whose: str, grace: float, ordered_at: float
    ) -> frozenset[ProcessId]:
        report = self._reporter(unit, whose)
        try:
            return await bury(
                family,
                grace,
                KILL_WAIT_SECONDS,
                self._clock,
                report,
                stop_signal=unit.running_config.stop_signal,
                snapshots=self._snapshots,
                ordered_at=ordered_at,
            )
        except Exception as error:
            # A fault of ours: nothing is confirmed gone, and it is tried again.
            report(f"ending its tree failed: {type(error).__name__}: {error}")
            return family.known or frozenset({family.main})

    def _reporter(self, unit: Unit, whose: str) -> Callable[[str], None]:
        number = unit.state.life

        def report(sentence: str) -> None:
            self._note(Event(Kind.BURIAL, whose + sentence, unit.config.name, number))

        return report
