"""Lives of workers that the configuration does not name any more, and what is kept of those.

A life is marked as being ended before it is told to: a daemon that comes next, whose configuration
names the worker again, must not adopt one that drains. When all lives of a worker are gone, what
was kept of it goes too, but not a stop by the operator: that holds for a worker that comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence

from stepwarden.daemon.endings import Endings
from stepwarden.daemon.keeping import Keeper
from stepwarden.daemon.runners import ATTACH
from stepwarden.daemon.tasks import Tasks
from stepwarden.daemon.unit import Unit
from stepwarden.edge.state_records import LifeRecord
from stepwarden.edge.state_store import StateStore


class Nobodys:
    """Ends such lives beside everything else. `units`: the workers that are configured now."""

    def __init__(
        self,
        units: Mapping[str, Unit],
        endings: Endings,
        keeper: Keeper,
        store: StateStore,
        tasks: Tasks,
        under_way: list[asyncio.Task[None]],
    ) -> None:
        self._units = units
        self._endings = endings
        self._keeper = keeper
        self._store = store
        self._tasks = tasks
        self._under_way = under_way

    async def end(self, records: Sequence[LifeRecord]) -> None:
        """Begin to end these; `under_way` gets a task for each."""
        gone = [record for record in records if record.worker not in self._units]
        marked = [record for record in gone if record.runner != ATTACH]  # those are let go
        for record in marked:
            self._keeper.note_ending(record)
        if marked:
            await self._store.durable()  # a disk that takes nothing holds up nobody
        self._under_way += [self._tasks.start(self._end(record)) for record in records]

    def forget_workers(self) -> None:
        """Keep nothing more of workers that are not configured and have no life any more."""
        alive = {record.worker for record in self._store.lives()}
        for worker in self._store.workers():
            self._forget(worker, alive)

    async def _end(self, record: LifeRecord) -> None:
        await self._endings.bury_nobodys(record)
        alive = {life.worker for life in self._store.lives()}
        self._forget(record.worker, alive)

    def _forget(self, worker: str, alive: Collection[str]) -> None:
        if worker not in self._units and worker not in alive:
            self._keeper.forget_gone(worker)
