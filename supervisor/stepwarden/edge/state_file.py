"""The file of the state database: made whole, opened, and set aside where it cannot be used.

At its own name the file is always a whole database: a new one is made beside it and renamed. So
one that is empty, cut or foreign there is damage, and is kept under a name that tells when.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from stepwarden.edge import state_schema
from stepwarden.edge.private_file import free_name
from stepwarden.edge.state_schema import NewerSchemaError, NotOursError

NAME = "stepwarden.sqlite"
OLD_JOURNAL = "journal.sqlite"
"""The event history of release 0.1: it becomes this database."""

BUSY_SECONDS = 1.0
KEEP_ASIDE = 5
"""Damaged files beyond so many go, the oldest first; those of a newer version never do."""

BESIDE = ("-wal", "-shm", "-journal")
"""What SQLite keeps beside a database, by the end of its name."""

_WAL_LIMIT_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class Opened:
    """An open database. `fresh`: it was made just now. `said`: what was set aside for it, or ""."""

    database: sqlite3.Connection
    fresh: bool
    said: str = ""


class UnusableError(Exception):
    """There is a file, and it cannot be used as it is; the text says why."""

    def __init__(self, text: str, label: str = "damaged") -> None:
        super().__init__(text)
        self.label = label


def open_state(directory: Path, wall: datetime, *, thorough: bool = True) -> Opened:
    """Open or make the database in `directory`; what cannot be used is set aside first.

    `thorough`: look through the whole file for damage. sqlite3.Error or OSError where no database
    can be had at all (full, read-only, locked): then nothing was set aside.
    """
    path = directory / NAME
    with suppress(OSError):
        scratch_of(path).unlink()
    try:
        if not os.path.lexists(path):
            _take_over(directory)
        return _open_or_make(path, thorough)
    except UnusableError as error:
        text = f"the state database {path} {error}"
        aside = put_aside(path, error.label, wall)
    opened = _open_or_make(path, thorough)
    said = f"{text}; it was kept as {aside} and a new one begun"
    return Opened(opened.database, opened.fresh, said)


def identity(path: Path) -> tuple[int, int]:
    """Which file lies there now: device and inode, zeros for none."""
    try:
        found = os.lstat(path)
    except OSError:
        return (0, 0)
    return (found.st_dev, found.st_ino)


def present(directory: Path) -> Path:
    """The file that holds the events of `directory` now: of release 0.1 until it is taken over."""
    path, old = directory / NAME, directory / OLD_JOURNAL
    return old if not os.path.lexists(path) and os.path.lexists(old) else path


def scratch_of(path: Path) -> Path:
    """Where a new database is made before it gets its name."""
    return path.with_name(path.name + ".new")


def _open_or_make(path: Path, thorough: bool) -> Opened:
    fresh = not os.path.lexists(path)
    if fresh:
        _make(path)
    _refuse_unusable(path)
    return Opened(_open(path, thorough), fresh)


def _refuse_unusable(path: Path) -> None:
    found = os.lstat(path)
    if stat.S_ISLNK(found.st_mode):
        raise UnusableError("is a symbolic link, which is not followed")
    if not stat.S_ISREG(found.st_mode):
        raise UnusableError("is not a regular file")
    if found.st_size == 0:
        raise UnusableError("is empty")
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except PermissionError as error:
        raise UnusableError(f"cannot be opened: {error.strerror}") from error
    try:
        if stat.S_IMODE(found.st_mode) & 0o077:
            os.fchmod(descriptor, 0o600)  # it holds secrets
    finally:
        os.close(descriptor)


def _make(path: Path) -> None:
    scratch = scratch_of(path)
    # Made by us first, so that it is private whatever the umask.
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    os.close(os.open(scratch, flags, 0o600))
    try:
        database = sqlite3.connect(scratch, isolation_level=None)
        try:
            database.execute("PRAGMA synchronous = FULL")
            state_schema.migrate(database)
        finally:
            database.close()
        for suffix in BESIDE:  # of a database that is gone: SQLite would mix it into this one
            with suppress(FileNotFoundError):
                path.with_name(path.name + suffix).unlink()
        os.rename(scratch, path)
    except BaseException:
        with suppress(OSError):
            scratch.unlink()
        raise
    sync_directory(path.parent)


def _open(path: Path, thorough: bool) -> sqlite3.Connection:
    database = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        with _as_unusable():
            # Before anything else, so that nothing of a newer version is touched.
            state_schema.refuse_foreign(database)
            if thorough:
                _look_through(database)
            # From its rollback journal to WAL: a reader never holds the writer up.
            database.execute("PRAGMA journal_mode = WAL")
            database.execute(f"PRAGMA journal_size_limit = {_WAL_LIMIT_BYTES}")
            state_schema.migrate(database)
            state_schema.check(database)
    except BaseException:
        database.close()
        raise
    return database


@contextmanager
def _as_unusable() -> Iterator[None]:
    """What is wrong with the content becomes UnusableError; trouble with the disk stays."""
    try:
        yield
    except NewerSchemaError as error:
        raise UnusableError(f"was not touched: {error}", "newer") from error
    except NotOursError as error:
        raise UnusableError(f"cannot be used: {error}") from error
    except sqlite3.DatabaseError as error:
        if says_damage(error):
            raise UnusableError(f"is damaged: {error}") from error
        raise


def says_damage(error: Exception) -> bool:
    """Whether it is about what is in the file, not about the disk or a lock."""
    if isinstance(error, sqlite3.OperationalError):
        # A step that finds tables that it was to make, or none that it was to use.
        return any(words in str(error) for words in ("already exists", "no such", "not an error"))
    return isinstance(error, sqlite3.DatabaseError)


def _look_through(database: sqlite3.Connection) -> None:
    (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        raise sqlite3.DatabaseError(" ".join(str(verdict).split()))


def _take_over(directory: Path) -> None:
    """The journal of release 0.1 is version 1 of this database: it gets the new name."""
    old = directory / OLD_JOURNAL
    if not old.is_file() or old.is_symlink():
        return
    with suppress(sqlite3.Error):  # what is wrong with it is found out at its new name
        database = sqlite3.connect(old, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            # One file alone can be renamed whole: what its WAL holds goes into it first.
            database.execute("PRAGMA journal_mode = DELETE")
        finally:
            database.close()
    os.rename(old, directory / NAME)
    for suffix in BESIDE:
        with suppress(OSError):
            os.rename(directory / (OLD_JOURNAL + suffix), directory / (NAME + suffix))
    sync_directory(directory)


def put_aside(path: Path, label: str, wall: datetime) -> Path:
    """Rename what lies at `path`, and what SQLite keeps beside it; returns the new name.

    The name tells when, and never is one that is taken.
    """
    aside = free_name(path.with_name(f"{path.name}.{label}"), wall)
    os.rename(path, aside)
    for suffix in BESIDE:
        with suppress(OSError):
            os.rename(path.with_name(path.name + suffix), aside.with_name(aside.name + suffix))
    sync_directory(path.parent)
    if label != "newer":
        _prune_aside(path, label)
    return aside


def _prune_aside(path: Path, label: str) -> None:
    prefix = f"{path.name}.{label}-"
    kept = [p for p in path.parent.iterdir() if p.name.startswith(prefix)]
    kept = sorted(p for p in kept if not p.name.endswith(BESIDE))
    for old in kept[:-KEEP_ASIDE]:
        for name in (old.name, *(old.name + suffix for suffix in BESIDE)):
            with suppress(OSError):
                _remove(old.with_name(name))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()  # one that is not empty stays: what is in it is not ours to delete
    else:
        path.unlink()


def sync_directory(directory: Path) -> None:
    """Make the names in it outlive a power cut, where the file system can."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
