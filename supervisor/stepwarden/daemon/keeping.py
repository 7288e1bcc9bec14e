"""Keeps what of each worker must outlive the daemon, and reads it back at its start."""

from __future__ import annotations

import json
from typing import Protocol

from stepwarden.core.memory import Kept, keep, recall
from stepwarden.core.worker import Outcome, WorkerState
from stepwarden.daemon.unit import Unit
from stepwarden.edge.host import this_host
from stepwarden.edge.state_records import WorkerRecord


class Notes(Protocol):
    """What keeping needs of the state store."""

    def note_worker(self, record: WorkerRecord) -> None:
        """Keep this; the newest wins."""

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
