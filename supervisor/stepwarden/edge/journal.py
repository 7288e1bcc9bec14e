"""The event journal: history in the state database, written by the store's thread.

`append` gives an event its id and returns; what has gathered is committed a batch at a time, so
that a slow or stuck disk never holds the verdict loop. While the database takes none, events stay
in memory, up to a bound.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from stepwarden.core.event import Event
from stepwarden.edge import journal_file
from stepwarden.edge.views import EVERYTHING, EventFilter, RecordedEvent

KEEP_EVENTS = 100_000
"""Older events are dropped."""

MAX_PENDING = 10_000
"""Events held in memory while the file takes none; beyond it the oldest are lost and counted."""

FLUSH_SECONDS = 5.0
_PRUNE_EVERY = 1000


class Journal:
    """The history of this supervisor. Every method may be called from any thread.

    `wake` is called when there is something to write; `trouble` says what is wrong.
    `incarnations`: the highest of each worker that the file told of when it was opened first, so
    that the count goes on; empty where it could not be read.
    """

    def __init__(
        self, path: Path, keep: int, wake: Callable[[], None], trouble: Callable[[], str]
    ) -> None:
        self._path = path
        self._keep = keep
        self._wake = wake
        self._told = trouble
        self._lock = threading.Lock()
        self._idle = threading.Event()
        self._idle.set()
        self._pending: deque[RecordedEvent] = deque(maxlen=MAX_PENDING)
        self._last_id = 0
        self._numbered = False
        self._since_pruned = _PRUNE_EVERY
        self.incarnations: Mapping[str, int] = {}
        self.lost = 0

    @property
    def trouble(self) -> str:
        """Why history is not being kept on disk, or what was lost; "" while all is well."""
        return self._told()

    def append(self, event: Event, now: float, wall: datetime) -> RecordedEvent:
        """Take one event; returns it with its id and times. Never waits for the disk."""
        with self._lock:
            self._last_id += 1
            recorded = RecordedEvent(
                self._last_id, wall.isoformat(timespec="milliseconds"), now, event
            )
            if len(self._pending) == self._pending.maxlen:
                self.lost += 1
            self._pending.append(recorded)
            self._idle.clear()
        self._wake()
        return recorded

    def recent(self, limit: int, wanted: EventFilter = EVERYTHING) -> Sequence[RecordedEvent]:
        """The newest `limit` events that are `wanted`, oldest first.

        Waits for the disk: not for the loop's own thread.
        """
        with self._lock:
            pending = [recorded for recorded in self._pending if wanted.wants(recorded)]
        kept: list[RecordedEvent] = []
        with suppress(sqlite3.Error, OSError, ValueError):
            kept = journal_file.read(self._path, limit, wanted)
        # What was committed in between is in both.
        unwritten = {recorded.id: recorded for recorded in (*kept, *pending)}
        return [unwritten[key] for key in sorted(unwritten)][-limit:] if limit > 0 else []

    def flush(self, timeout: float = FLUSH_SECONDS) -> bool:
        """Wait until everything appended so far is on disk; False if it is not in time."""
        self._wake()
        return self._idle.wait(timeout)

    # For the store's writer

    def go_on_after(self, newest: int, incarnations: Mapping[str, int]) -> None:
        """The database is open: go on behind what it holds, over nothing. Only the first counts."""
        if self._numbered:
            return
        self._numbered = True
        with self._lock:
            self.incarnations = incarnations
            moved = [replace(recorded, id=recorded.id + newest) for recorded in self._pending]
            self._pending.clear()
            self._pending.extend(moved)
            self._last_id += newest

    def batch(self) -> list[RecordedEvent]:
        """All that is to be written, oldest first."""
        with self._lock:
            return list(self._pending)

    def prune_to(self, batch: Sequence[RecordedEvent]) -> int:
        """Which events may go with this batch: ids up to this; 0 for none this time."""
        if not batch or self._since_pruned + len(batch) < _PRUNE_EVERY:
            return 0
        return max(0, batch[-1].id - self._keep)

    def written(self, batch: Sequence[RecordedEvent]) -> None:
        """This batch is committed."""
        self._since_pruned += len(batch)
        if self._since_pruned >= _PRUNE_EVERY:
            self._since_pruned = 0
        with self._lock:
            while self._pending and batch and self._pending[0].id <= batch[-1].id:
                self._pending.popleft()
            if not self._pending:
                self._idle.set()
