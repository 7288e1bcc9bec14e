"""The schema of the state database: one step for each version, and the check that it is there.

Version 1 was the event journal of release 0.1 (`journal.sqlite`): it becomes this database by the
steps that follow. Every step runs in one transaction with the number it leads to.
"""

from __future__ import annotations

import sqlite3

EVENT_COLUMNS = (
    "id, time, monotonic, kind, worker, incarnation, from_state, to_state, cause, rank,"
    " sentence, data"
)
LIFE_COLUMNS = "incarnation, worker, boot_id, noted_at, body"
WORKER_COLUMNS = "worker, boot_id, noted_boot, noted_at, body"
PROCESS_COLUMNS = "incarnation, pid, start_ticks"
LEARNED_COLUMNS = "subject, worker, used, body"

_EVENTS = """
CREATE TABLE event (
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
CREATE INDEX event_worker ON event (worker, id);
"""

_LIVES = """
CREATE TABLE life (
    incarnation TEXT PRIMARY KEY,
    worker TEXT NOT NULL,
    boot_id TEXT NOT NULL,
    noted_at REAL NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE TABLE worker (
    worker TEXT PRIMARY KEY,
    boot_id TEXT NOT NULL,
    noted_boot TEXT NOT NULL,
    noted_at REAL NOT NULL,
    body TEXT NOT NULL
) STRICT;
CREATE TABLE process (
    incarnation TEXT NOT NULL,
    pid INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL,
    PRIMARY KEY (incarnation, pid, start_ticks)
) STRICT, WITHOUT ROWID;
"""

_LEARNED = """
CREATE TABLE learned (
    subject TEXT PRIMARY KEY,
    worker TEXT NOT NULL,
    used INTEGER NOT NULL,
    body TEXT NOT NULL
) STRICT;
"""

STEPS = (_EVENTS, _LIVES, _LEARNED)
"""Step N leads from version N to version N + 1."""

VERSION = len(STEPS)


class NotOursError(sqlite3.DatabaseError):
    """The file is a database, and not one that this program may use."""


class NewerSchemaError(NotOursError):
    """A later stepwarden wrote this file."""


def version_of(database: sqlite3.Connection) -> int:
    """The version that the file says it has."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    return int(version)


def refuse_foreign(database: sqlite3.Connection) -> None:
    """NewerSchemaError or NotOursError where nothing may be done with this file."""
    version = version_of(database)
    if version > VERSION:
        raise NewerSchemaError(f"its schema version {version} is newer than ours, {VERSION}")
    if version < 1:
        raise NotOursError("it is not a database of stepwarden")


def migrate(database: sqlite3.Connection) -> None:
    """Bring it to the present version, a step at a time, each whole or not at all."""
    for version in range(version_of(database), VERSION):
        step = f"BEGIN IMMEDIATE; {STEPS[version]} PRAGMA user_version = {version + 1}; COMMIT;"
        try:
            database.executescript(step)
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise


def check(database: sqlite3.Connection) -> None:
    """NotOursError where a table or column is not there."""
    tables = {
        "event": EVENT_COLUMNS,
        "life": LIFE_COLUMNS,
        "worker": WORKER_COLUMNS,
        "process": PROCESS_COLUMNS,
        "learned": LEARNED_COLUMNS,
    }
    for table, columns in tables.items():
        try:
            database.execute(f"SELECT {columns} FROM {table} LIMIT 1")
        except sqlite3.OperationalError as error:
            if "no such" in str(error):
                raise NotOursError(str(error)) from error
            raise
