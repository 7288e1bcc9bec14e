"""Rows of the state database: lives, workers, processes, what is usual; what changed of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stepwarden.core.evidence import ProcessId
from stepwarden.edge import journal_file
from stepwarden.edge.state_records import (
    LearnedRecord,
    StampedLife,
    StampedWorker,
    WorkerRecord,
    life_from_json,
    life_json,
)
from stepwarden.edge.state_schema import (
    LEARNED_COLUMNS,
    LIFE_COLUMNS,
    PROCESS_COLUMNS,
    WORKER_COLUMNS,
)
from stepwarden.edge.views import RecordedEvent


@dataclass(frozen=True, slots=True)
class Changes:
    """What one commit takes. None or False: the row goes. `rewrite`: the tables hold only this.

    `prune_to`: events with ids up to it are dropped; 0: none.
    """

    lives: Mapping[str, StampedLife | None] = field(default_factory=dict)
    workers: Mapping[str, StampedWorker | None] = field(default_factory=dict)
    processes: Mapping[tuple[str, ProcessId], bool] = field(default_factory=dict)
    learned: Mapping[str, LearnedRecord | None] = field(default_factory=dict)
    events: Sequence[RecordedEvent] = ()
    rewrite: bool = False
    prune_to: int = 0

    def __bool__(self) -> bool:
        rows = (self.lives, self.workers, self.processes, self.learned, self.events)
        return any(rows) or self.rewrite


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a database holds for this boot. `bad`: a sentence for each row that cannot be read."""

    lives: Mapping[str, StampedLife]
    workers: Mapping[str, StampedWorker]
    processes: Mapping[str, frozenset[ProcessId]]
    learned: Mapping[str, LearnedRecord]
    bad: Sequence[str]


def load(database: sqlite3.Connection, boot_id: str) -> Loaded:
    """Everything but events. Lives of another boot are left out: their processes are gone."""
    lives: dict[str, StampedLife] = {}
    bad = []
    query = "SELECT incarnation, body FROM life WHERE boot_id = ?"
    for incarnation, body in database.execute(query, (boot_id,)):
        try:
            lives[incarnation] = life_from_json(body)
        except ValueError as error:
            bad.append(f"the note of life {incarnation} in the database cannot be read: {error}")
    found = database.execute(f"SELECT {WORKER_COLUMNS} FROM worker")
    workers = {
        name: StampedWorker(noted_boot, noted_at, WorkerRecord(name, boot, body))
        for name, boot, noted_boot, noted_at, body in found
    }
    processes: dict[str, set[ProcessId]] = {}
    for incarnation, pid, ticks in database.execute(f"SELECT {PROCESS_COLUMNS} FROM process"):
        if incarnation in lives:
            processes.setdefault(incarnation, set()).add(ProcessId(pid, ticks))
    frozen = {name: frozenset(ids) for name, ids in processes.items()}
    return Loaded(lives, workers, frozen, load_learned(database), bad)


def load_learned(database: sqlite3.Connection) -> dict[str, LearnedRecord]:
    """What is usual, by subject; it holds for every boot."""
    found = database.execute(f"SELECT {LEARNED_COLUMNS} FROM learned")
    return {subject: LearnedRecord(worker, used, body) for subject, worker, used, body in found}


def forget_other_boots(database: sqlite3.Connection, boot_id: str) -> None:
    """Lives of other boots, and processes of lives that are not there, whole or not at all."""
    database.execute("BEGIN IMMEDIATE")
    try:
        database.execute("DELETE FROM life WHERE boot_id != ?", (boot_id,))
        lives = "SELECT incarnation FROM life"
        database.execute(f"DELETE FROM process WHERE incarnation NOT IN ({lives})")
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def commit(database: sqlite3.Connection, changes: Changes, *, through: bool) -> None:
    """Write all of it in one transaction. `through`: it outlives a power cut too."""
    database.execute(f"PRAGMA synchronous = {'FULL' if through else 'NORMAL'}")
    database.execute("BEGIN IMMEDIATE")
    try:
        _apply(database, changes)
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def _apply(database: sqlite3.Connection, changes: Changes) -> None:
    if changes.rewrite:
        for table in ("life", "worker", "process", "learned"):
            database.execute(f"DELETE FROM {table}")
    _put_lives(database, changes.lives)
    _put_workers(database, changes.workers)
    _put_processes(database, changes.processes)
    _put_learned(database, changes.learned)
    if changes.events:
        journal_file.write(database, changes.events)
    if changes.prune_to > 0:
        journal_file.prune(database, changes.prune_to)


def _put_lives(database: sqlite3.Connection, lives: Mapping[str, StampedLife | None]) -> None:
    gone = [(name,) for name, life in lives.items() if life is None]
    database.executemany("DELETE FROM life WHERE incarnation = ?", gone)
    rows = [
        (name, clean(life.record.worker), life.record.boot_id, life.noted_at, life_json(life))
        for name, life in lives.items()
        if life is not None
    ]
    database.executemany(
        f"INSERT OR REPLACE INTO life ({LIFE_COLUMNS}) VALUES (?, ?, ?, ?, ?)", rows
    )


def _put_workers(database: sqlite3.Connection, workers: Mapping[str, StampedWorker | None]) -> None:
    gone = [(name,) for name, record in workers.items() if record is None]
    database.executemany("DELETE FROM worker WHERE worker = ?", gone)
    rows = [
        (name, w.record.boot_id, w.noted_boot, w.noted_at, clean(w.record.body))
        for name, w in workers.items()
        if w is not None
    ]
    database.executemany(
        f"INSERT OR REPLACE INTO worker ({WORKER_COLUMNS}) VALUES (?, ?, ?, ?, ?)", rows
    )


def _put_processes(
    database: sqlite3.Connection, processes: Mapping[tuple[str, ProcessId], bool]
) -> None:
    rows: dict[bool, list[tuple[str, int, int]]] = {True: [], False: []}
    for (incarnation, process), there in processes.items():
        rows[there].append((incarnation, process.pid, process.start_ticks))
    where = "incarnation = ? AND pid = ? AND start_ticks = ?"
    database.executemany(f"DELETE FROM process WHERE {where}", rows[False])
    database.executemany(
        f"INSERT OR REPLACE INTO process ({PROCESS_COLUMNS}) VALUES (?, ?, ?)", rows[True]
    )


def _put_learned(database: sqlite3.Connection, learned: Mapping[str, LearnedRecord | None]) -> None:
    gone = [(subject,) for subject, record in learned.items() if record is None]
    database.executemany("DELETE FROM learned WHERE subject = ?", gone)
    rows = [
        (subject, clean(one.worker), one.used, clean(one.body))
        for subject, one in learned.items()
        if one is not None
    ]
    database.executemany(
        f"INSERT OR REPLACE INTO learned ({LEARNED_COLUMNS}) VALUES (?, ?, ?, ?)", rows
    )


def clean(text: str) -> str:
    """Without lone surrogates (an undecodable byte in some path), which would refuse the commit."""
    return text.encode(errors="replace").decode()
