"""Keeps what of each worker must outlive the daemon, and reads it back at its start."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Protocol

from stepwarden.core.lifecycle import State
from stepwarden.core.memory import Kept, keep, recall
from stepwarden.core.worker import Outcome, WorkerState
from stepwarden.daemon.life import number_in
from stepwarden.daemon.unit import Unit
from stepwarden.edge.host import this_host
from stepwarden.edge.state_records import LifeRecord, WorkerRecord


class Notes(Protocol):
    """What keeping needs of the state store."""

    def note_worker(self, record: WorkerRecord) -> None:
        """Keep this; the newest wins."""

    def forget_worker(self, worker: str) -> None:
        """Keep nothing of it any more."""

    def workers(self) -> dict[str, WorkerRecord]:
        """What was kept."""


class Keeper:
    """Notes each change of a worker's lasting part once."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._boot = this_host().boot
        self._last: dict[str, str] = {}

    def follow(self, unit: Unit, _outcome: Outcome, _now: float) -> None:
        """A worker has moved."""
        self.note(unit.state)

    def note(self, state: WorkerState) -> None:
        """Keep this state if anything lasting has changed. Never waits for a disk."""
        body = json.dumps(keep(state), sort_keys=True)
        if self._last.get(state.name) != body:
            self._last[state.name] = body
            self._notes.note_worker(WorkerRecord(state.name, self._boot, body))

    def note_ending(self, life: LifeRecord) -> None:
        """This life of a worker that is not configured is being ended: none goes on with it."""
        kept, same_boot = self.recall(life.worker)
        number = number_in(life.incarnation)
        state = WorkerState(life.worker, lifecycle=State.STOPPING, incarnation=number)
        if kept is not None:
            state = replace(state, wish=kept.wish, incarnation=max(number, kept.incarnation))
        if kept is not None and same_boot:
            state = replace(state, deaths=kept.deaths, ledger=kept.ledger)
        self.note(state)

    def forget_gone(self, worker: str) -> None:
        """Nothing of it is left or configured. The operator's stop outlives even that."""
        self._last.pop(worker, None)
        kept, _ = self.recall(worker)
        if kept is None or kept.wish != "down":
            self._notes.forget_worker(worker)

    def recall(self, worker: str) -> tuple[Kept | None, bool]:
        """What an earlier daemon kept of it, and whether that was since this host booted."""
        record = self._notes.workers().get(worker)
        if record is None:
            return None, False
        try:
            told = json.loads(record.body)
        except (ValueError, RecursionError):
            return None, False
        return recall(told), record.boot_id == self._boot
