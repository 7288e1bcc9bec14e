"""Ending trees: of the present life of a worker, and of what an earlier daemon left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from pathlib import Path

from stepwarden.clock import Clock
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import ProcessId
from stepwarden.daemon.life import number_in
from stepwarden.daemon.unit import Unit
from stepwarden.edge.burial import bury
from stepwarden.edge.family import Family
from stepwarden.edge.life_records import LifeRecord, LifeRecords
from stepwarden.edge.page_home import remove_page_dir, remove_page_home
from stepwarden.edge.snapshots import Snapshots
from stepwarden.edge.traces import TraceReader

KILL_WAIT_SECONDS = 10.0
"""How long after KILL a process may still be there before it counts as unkillable."""

LEFT_BEHIND = "left behind by an earlier daemon: "

Whose = list[tuple[Family, str]]
"""Families to end, each with the words that say whose they are."""


class Endings:
    """Ends whole trees and confirms that they are gone; knows what was left behind.

    `mains`: gives the main pids of all present lives. `page_home`: where pages of this daemon lie.
    """

    def __init__(
        self,
        records: LifeRecords,
        snapshots: Snapshots,
        clock: Clock,
        note: Callable[[Event], None],
        mains: Callable[[], set[int]],
        page_home: Path,
    ) -> None:
        self._records = records
        self._snapshots = snapshots
        self._clock = clock
        self._note = note
        self._mains = mains
        self._page_home = page_home
        self._inherited: dict[str, list[LifeRecord]] = {}
        self.traces = TraceReader()

    def inherit(self, workers: Collection[str]) -> tuple[dict[str, int], list[LifeRecord]]:
        """Read what an earlier daemon of this state directory did not see to its end.

        Returns those of `workers` that must be ended before they start, each with its highest
        incarnation among them, and the lives of workers that are not among them.
        """
        nobodys = []
        for record in self._records.left_behind():
            if record.worker in workers:
                self._inherited.setdefault(record.worker, []).append(record)
            else:
                nobodys.append(record)
        highest = {
            worker: max(number_in(record.incarnation) for record in records)
            for worker, records in self._inherited.items()
        }
        return highest, nobodys

    def families(self, unit: Unit) -> Whose:
        """Whom to end for this worker: its present life, and what was left behind of it."""
        inherited = self._inherited.get(unit.config.name, [])
        found = [(self._family_of(record), LEFT_BEHIND) for record in inherited]
        if unit.life is not None and unit.life.family is not None:
            found.append((unit.life.family, ""))
        return found

    async def bury(
        self, unit: Unit, families: Whose, grace: float, ordered_at: float
    ) -> frozenset[ProcessId]:
        """End all of them at once; returns what cannot be ended."""
        ends = (self._end(unit, family, whose, grace, ordered_at) for family, whose in families)
        return frozenset().union(*await asyncio.gather(*ends))

    async def bury_nobodys(self, record: LifeRecord) -> None:
        """End the life of a worker that the configuration no longer names."""

        def report(sentence: str) -> None:
            self._note(Event(Kind.BURIAL, LEFT_BEHIND + sentence, record.worker))

        family, wait = self._family_of(record), KILL_WAIT_SECONDS
        shared = self._snapshots
        if not await bury(family, wait, wait, self._clock, report, snapshots=shared):
            self._forget(record)

    def forget_inherited(self, worker: str) -> None:
        """All that was left behind of this worker is gone."""
        for record in self._inherited.pop(worker, []):
            self._forget(record)

    async def _end(
        self, unit: Unit, family: Family, whose: str, grace: float, ordered_at: float
    ) -> frozenset[ProcessId]:
        number = unit.state.life

        def report(sentence: str) -> None:
            self._note(Event(Kind.BURIAL, whose + sentence, unit.config.name, number))

        try:
            return await bury(
                family,
                grace,
                KILL_WAIT_SECONDS,
                self._clock,
                report,
                stop_signal=unit.config.stop_signal,
                snapshots=self._snapshots,
                ordered_at=ordered_at,
            )
        except Exception as error:
            # A fault of ours: nothing is confirmed gone, and it is tried again.
            report(f"ending its tree failed: {type(error).__name__}: {error}")
            return family.known or frozenset({family.main})

    def _family_of(self, record: LifeRecord) -> Family:
        main = ProcessId(record.pid, record.start_ticks)
        page_dir = Path(record.page_dir)
        return Family(main, record.incarnation, page_dir, self._mains, self.traces)

    def _forget(self, record: LifeRecord) -> None:
        directory = Path(record.page_dir)
        remove_page_dir(directory)
        if directory.parent != self._page_home:
            remove_page_home(directory.parent)
        self._records.remove(record.incarnation)
