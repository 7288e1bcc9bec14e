"""Reads a state database through a private copy, where it cannot or must not be opened itself.

SQLite makes files beside a database in WAL mode even to read it. So a full or read-only disk, and
a command that must change nothing, take a copy elsewhere: the database and its WAL as they lie
there, which is what a daemon that was killed has committed.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from stepwarden.edge import state_schema

PREFIX = "stepwarden-copy-"
_COPIED = ("", "-wal", "-journal")
_ATTEMPTS = 5

Mark = tuple[int, int, int] | None


@contextmanager
def open_copy(path: Path, scratch: Path | None = None) -> Iterator[sqlite3.Connection]:
    """A copy of the database at `path`, in a new directory below `scratch`, gone afterwards.

    sqlite3.Error or OSError where it cannot be had. NewerSchemaError and NotOursError likewise.
    """
    with tempfile.TemporaryDirectory(prefix=PREFIX, dir=scratch) as directory:
        copy = Path(directory) / "copy.sqlite"
        _copy(path, copy)
        with closing(sqlite3.connect(copy, isolation_level=None)) as database:
            state_schema.refuse_foreign(database)
            yield database


@contextmanager
def open_unchanged(path: Path) -> Iterator[sqlite3.Connection]:
    """The database at `path` to read events from; nothing is made or changed beside it."""
    if any(_mark(path.with_name(path.name + suffix)) for suffix in _COPIED[1:]):
        with open_copy(path) as database:
            yield database
        return
    os.close(_open_plain(path))  # the kernel's words, where it cannot be read
    # Closed cleanly: all of it is in the one file, and nobody writes to it.
    address = f"file:{quote(str(path))}?mode=ro&immutable=1"
    with closing(sqlite3.connect(address, uri=True, isolation_level=None)) as database:
        state_schema.refuse_foreign(database)
        yield database


def remove_left_copies(scratch: Path) -> None:
    """Copies that a daemon was making when it was killed."""
    with suppress(OSError):
        for path in scratch.glob(PREFIX + "*"):
            shutil.rmtree(path, ignore_errors=True)


def _copy(path: Path, copy: Path) -> None:
    """OSError where it changes each time while it is copied: then somebody else reads it anyway."""
    for _ in range(_ATTEMPTS):
        before = _marks(path)
        for suffix, mark in zip(_COPIED, before, strict=True):
            target = copy.with_name(copy.name + suffix)
            target.unlink(missing_ok=True)
            if mark is not None or not suffix:
                _copy_one(path.with_name(path.name + suffix), target)
        if _marks(path) == before:
            return
    raise OSError(f"{path} changes while it is read")


def _copy_one(source: Path, target: Path) -> None:
    with open(_open_plain(source), "rb") as reading, target.open("xb") as writing:
        shutil.copyfileobj(reading, writing, 1 << 20)


def _open_plain(path: Path) -> int:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a regular file")
    return descriptor


def _marks(path: Path) -> list[Mark]:
    return [_mark(path.with_name(path.name + suffix)) for suffix in _COPIED]


def _mark(path: Path) -> Mark:
    """What tells one content from another; None for none."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return None
    return (found.st_ino, found.st_size, found.st_mtime_ns) if found.st_size else None
