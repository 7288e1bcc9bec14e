"""The event journal: history in SQLite, written by a thread of its own.

`append` gives an event its id and returns; the writer commits what has gathered, a batch at a
time, so that a slow or stuck disk never holds the verdict loop. A commit is whole or absent at any
kill. Trouble with the file (full, read-only, damaged, another version) never stops supervision:
events stay in memory, up to a bound, and the file is tried again; a damaged file is moved aside
and a new one begun. `trouble` says what is wrong, for one report.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from stepwarden.core.event import Event
from stepwarden.edge import journal_file
from stepwarden.edge.views import RecordedEvent

KEEP_EVENTS = 100_000
"""Older events are dropped."""

MAX_PENDING = 10_000
"""Events held in memory while the file takes none; beyond it the oldest are lost and counted."""

RETRY_SECONDS = 10.0
_FLUSH_SECONDS = 5.0
_PRUNE_EVERY = 1000


class Journal:
    """The history of this supervisor. Every method may be called from any thread.

    `incarnations`: the highest of each worker that the file told of when it was opened first, so
    that the count goes on; empty where it could not be read.
    """

    def __init__(self, path: Path, keep: int = KEEP_EVENTS) -> None:
        self._path = path
        self._keep = keep
        self._lock = threading.Lock()
        self._news = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._closing = threading.Event()
        self._pending: deque[RecordedEvent] = deque(maxlen=MAX_PENDING)
        self._database: sqlite3.Connection | None = None
        self._trouble = ""
        self._since_pruned = _PRUNE_EVERY
        self.lost = 0
        self._open()
        self._numbered = self._database is not None
        self._last_id = self._newest_id()
        self.incarnations = self._highest_incarnations()
        self._thread = threading.Thread(target=self._write, name="journal", daemon=True)
        self._thread.start()

    @property
    def trouble(self) -> str:
        """Why history is not being kept on disk, or what was lost; "" while all is well."""
        return self._trouble

    def append(self, event: Event, now: float, wall: datetime) -> RecordedEvent:
        """Take one event; returns it with its id and times. Never waits for the disk."""
        with self._lock:
            self._last_id += 1
            recorded = RecordedEvent(
                self._last_id, wall.isoformat(timespec="milliseconds"), now, event
            )
            if len(self._pending) == MAX_PENDING:
                self.lost += 1
            self._pending.append(recorded)
            self._idle.clear()
        self._news.set()
        return recorded

    def recent(self, limit: int, worker: str = "") -> Sequence[RecordedEvent]:
        """The newest `limit` events of one worker, or of all with "", oldest first.

        Waits for the disk: not for the loop's own thread.
        """
        with self._lock:
            pending = [r for r in self._pending if not worker or r.event.worker == worker]
        kept: list[RecordedEvent] = []
        with suppress(sqlite3.Error, OSError, ValueError):
            kept = journal_file.read(self._path, limit, worker)
        # What was committed in between is in both.
        unwritten = {recorded.id: recorded for recorded in (*kept, *pending)}
        return [unwritten[key] for key in sorted(unwritten)][-limit:] if limit > 0 else []

    def flush(self, timeout: float = _FLUSH_SECONDS) -> bool:
        """Wait until everything appended so far is on disk; False if it is not in time."""
        self._news.set()
        return self._idle.wait(timeout)

    def close(self) -> None:
        """Write what is left, within a few seconds, and close the file."""
        self._closing.set()
        self._news.set()
        self._thread.join(_FLUSH_SECONDS)

    def _open(self) -> None:
        try:
            self._database, aside = journal_file.open_file(self._path)
        except (sqlite3.Error, OSError) as error:
            self._database = None
            self._trouble = f"the event journal {self._path} cannot be used: {error}"
        else:
            self._trouble = aside

    def _newest_id(self) -> int:
        if self._database is None:
            return 0
        try:
            return journal_file.newest_id(self._database)
        except sqlite3.Error as error:
            self._fail(error)
            return 0

    def _highest_incarnations(self) -> dict[str, int]:
        if self._database is None:
            return {}
        try:
            return journal_file.incarnations(self._database)
        except sqlite3.Error as error:
            self._fail(error)
            return {}

    def _write(self) -> None:
        healthy = self._database is not None
        while not self._closing.is_set():
            if healthy:
                self._news.wait()
                self._news.clear()
            elif not self._closing.wait(RETRY_SECONDS):
                self._open()
                self._number_on()
            healthy = self._commit()
        self._commit()
        if self._database is not None:
            with suppress(sqlite3.Error):
                self._database.close()

    def _number_on(self) -> None:
        """Where the file could not be opened at first: go on behind what it holds, over nothing."""
        if self._numbered or self._database is None:
            return
        newest = self._newest_id()
        if self._database is None:
            return  # it could not be asked; another time
        self._numbered = True
        with self._lock:
            moved = [replace(recorded, id=recorded.id + newest) for recorded in self._pending]
            self._pending.clear()
            self._pending.extend(moved)
            self._last_id += newest

    def _commit(self) -> bool:
        """Write all that is pending; False where the file does not take it."""
        with self._lock:
            batch = list(self._pending)
        if self._database is None:
            return False
        try:
            if batch:
                journal_file.write(self._database, batch)
                self._prune(len(batch), batch[-1].id)
        except (sqlite3.Error, OSError) as error:
            self._fail(error)
            return False
        with self._lock:
            while self._pending and batch and self._pending[0].id <= batch[-1].id:
                self._pending.popleft()
            if not self._pending:
                self._idle.set()
        return True

    def _prune(self, written: int, newest: int) -> None:
        self._since_pruned += written
        if self._since_pruned >= _PRUNE_EVERY and self._database is not None:
            self._since_pruned = 0
            journal_file.prune(self._database, newest - self._keep)

    def _fail(self, error: Exception) -> None:
        self._trouble = f"the event journal {self._path} takes no events: {error}"
        if self._database is not None:
            with suppress(sqlite3.Error):
                self._database.close()
            self._database = None
