"""The SQLite file of the event journal: schema, rows, and what to do with a damaged file."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from stepwarden.core.event import Event, Kind
from stepwarden.edge.views import RecordedEvent, data_json

SCHEMA_VERSION = 1
BUSY_SECONDS = 2.0

_COLUMNS = (
    "id, time, monotonic, kind, worker, incarnation, from_state, to_state, cause, rank,"
    " sentence, data"
)
_SCHEMA = """
CREATE TABLE IF NOT EXISTS event (
    id INTEGER PRIMARY KEY,
    time TEXT NOT NULL,
    monotonic REAL NOT NULL,
    kind TEXT NOT NULL,
    worker TEXT NOT NULL,
    incarnation TEXT NOT NULL,
    from_state TEXT NOT NULL,
    to_state TEXT NOT NULL,
    cause TEXT NOT NULL,
    rank TEXT NOT NULL,
    sentence TEXT NOT NULL,
    data TEXT NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS event_worker ON event (worker, id);
"""


def open_file(path: Path) -> tuple[sqlite3.Connection, str]:
    """Open or create the journal for writing; returns it and "" or what was put aside.

    A damaged file, or one of a newer version, is renamed and a new one begun. sqlite3.Error or
    OSError where no file can be had at all.
    """
    try:
        return _open(path), ""
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise  # full, read-only, missing directory: nothing is wrong with what is in it
        aside = put_aside(path)
        text = f"the event journal {path} could not be read ({error}); it was kept as {aside}"
        return _open(path), text


def _open(path: Path) -> sqlite3.Connection:
    # Made by us first, so that it is private whatever the umask.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    database = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        # NORMAL in WAL mode: a kill loses nothing that was committed, a power cut may.
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version > SCHEMA_VERSION:
            raise sqlite3.DatabaseError(f"its schema version {version} is newer than ours")
        (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(" ".join(str(verdict).split()))
        database.executescript(_SCHEMA)
        database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        database.execute(f"SELECT {_COLUMNS} FROM event LIMIT 1")
    except sqlite3.OperationalError as error:
        database.close()
        if "no such column" in str(error) or "not an error" in str(error):
            raise sqlite3.DatabaseError(str(error)) from error
        raise
    except BaseException:
        database.close()
        raise
    return database


def put_aside(path: Path) -> Path:
    """Rename the journal and its WAL to the first free name; returns that name."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    path.rename(aside)
    for suffix in ("-wal", "-shm"):
        beside = path.with_name(path.name + suffix)
        if beside.exists():
            beside.rename(aside.with_name(aside.name + suffix))
    return aside


def newest_id(database: sqlite3.Connection) -> int:
    """Id of the newest event; 0 where there is none."""
    (newest,) = database.execute("SELECT max(id) FROM event").fetchone()
    return int(newest or 0)


def incarnations(database: sqlite3.Connection) -> dict[str, int]:
    """The highest incarnation that is told of each worker, by its name."""
    query = (
        "SELECT worker, max(CAST(incarnation AS INTEGER)) FROM event"
        " WHERE worker != '' GROUP BY worker"
    )
    return {worker: max(int(highest or 0), 0) for worker, highest in database.execute(query)}


def write(database: sqlite3.Connection, batch: Sequence[RecordedEvent]) -> None:
    """Commit a batch whole or not at all."""
    rows = [_row(recorded) for recorded in batch]
    marks = ", ".join("?" * len(rows[0]))
    database.execute("BEGIN IMMEDIATE")
    try:
        statement = f"INSERT OR REPLACE INTO event ({_COLUMNS}) VALUES ({marks})"
        database.executemany(statement, rows)
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


def prune(database: sqlite3.Connection, up_to: int) -> None:
    """Drop events with ids up to `up_to`."""
    database.execute("DELETE FROM event WHERE id <= ?", (up_to,))


def read(path: Path, limit: int, worker: str) -> list[RecordedEvent]:
    """The newest events, oldest first, through a connection of its own."""
    where, values = ("WHERE worker = ?", [worker]) if worker else ("", [])
    query = f"SELECT {_COLUMNS} FROM event {where} ORDER BY id DESC LIMIT ?"
    address = f"file:{quote(str(path))}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS)) as database:
        rows = database.execute(query, [*values, limit]).fetchall()
    return [_recorded(row) for row in reversed(rows)]


def _row(recorded: RecordedEvent) -> tuple[Any, ...]:
    event = recorded.event
    names = (event.worker, event.incarnation, event.from_state, event.to_state)
    texts = (*names, event.cause, event.rank, event.sentence, data_json(event))
    # A lone surrogate (an undecodable byte in some path) is no UTF-8 and would refuse the batch.
    clean = (text.encode(errors="replace").decode() for text in texts)
    return (recorded.id, recorded.time, recorded.monotonic, str(event.kind), *clean)


def _recorded(row: Sequence[Any]) -> RecordedEvent:
    number, time, monotonic, kind, worker, incarnation, old, new, cause, rank, sentence, data = row
    event = Event(
        kind=_kind(kind),
        sentence=sentence,
        worker=worker,
        incarnation=incarnation,
        from_state=old,
        to_state=new,
        cause=cause,
        rank=rank,
        data=json.loads(data),
    )
    return RecordedEvent(number, time, monotonic, event)


def _kind(name: str) -> Kind:
    try:
        return Kind(name)
    except ValueError:
        return Kind.DAEMON  # written by another version; its sentence still says what it was
