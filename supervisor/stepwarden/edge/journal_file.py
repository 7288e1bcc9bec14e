"""Rows of the event history in the state database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from stepwarden.core.event import Event, Kind
from stepwarden.edge.state_file import BUSY_SECONDS
from stepwarden.edge.state_schema import EVENT_COLUMNS
from stepwarden.edge.views import EVERYTHING, EventFilter, RecordedEvent, data_json


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
    """Write events, within a transaction of the caller."""
    rows = [_row(recorded) for recorded in batch]
    marks = ", ".join("?" * len(rows[0]))
    statement = f"INSERT OR REPLACE INTO event ({EVENT_COLUMNS}) VALUES ({marks})"
    database.executemany(statement, rows)


def prune(database: sqlite3.Connection, up_to: int) -> None:
    """Drop events with ids up to `up_to`."""
    database.execute("DELETE FROM event WHERE id <= ?", (up_to,))


def read(path: Path, limit: int, wanted: EventFilter = EVERYTHING) -> list[RecordedEvent]:
    """The newest events, oldest first, through a connection of its own."""
    address = f"file:{quote(str(path))}?mode=ro"
    with closing(sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS)) as database:
        return select(database, limit, wanted)


def select(
    database: sqlite3.Connection, limit: int, wanted: EventFilter = EVERYTHING
) -> list[RecordedEvent]:
    """The newest events that are `wanted`, oldest first."""
    clauses, values = [], [*wanted.kinds]
    if wanted.kinds:
        clauses.append(f"kind IN ({', '.join('?' * len(wanted.kinds))})")
    if wanted.worker:
        clauses.append("worker = ?")
        values.append(wanted.worker)
    where = f"WHERE {' AND '.join(clauses)}" if clauses else ""
    query = f"SELECT {EVENT_COLUMNS} FROM event {where} ORDER BY id DESC"
    with closing(database.execute(query, values)) as rows:
        young = (row for row in rows if wanted.young_enough(row[1]))
        found = list(islice(young, max(limit, 0)))
    return [_recorded(row) for row in reversed(found)]


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
