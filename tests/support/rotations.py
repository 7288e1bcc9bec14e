"""What log rotation does to a file, and what a reader finds afterwards.

Each takes the path of the log and returns the former file; None where there is none any more.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

Rotation = Callable[[Path], Path | None]


def rename_and_create(log: Path) -> Path | None:
    """`create` of logrotate."""
    former = rename(log)
    log.touch(0o640)
    return former


def rename(log: Path) -> Path | None:
    """`nocreate` of logrotate, to a name that differs each time."""
    number = len(list(log.parent.glob(f"{log.name}-*")))
    former = log.with_name(f"{log.name}-{number}")
    log.rename(former)
    return former


def copytruncate(log: Path) -> Path | None:
    """`copytruncate` of logrotate."""
    former = log.with_name(f"{log.name}-copy")
    shutil.copyfile(log, former)
    with log.open("r+b") as file:
        file.truncate(0)
    return former


def delete(log: Path) -> Path | None:
    """An operator who needs room."""
    log.unlink()
    return None


def delete_directory(log: Path) -> Path | None:
    """The same, less careful."""
    shutil.rmtree(log.parent)
    return None


def move_directory(log: Path) -> Path | None:
    """Somebody tidies up."""
    number = len(list(log.parent.parent.glob(f"{log.parent.name}-*")))
    former = log.parent.with_name(f"{log.parent.name}-{number}")
    log.parent.rename(former)
    return former / log.name


ALL: tuple[Rotation, ...] = (
    rename_and_create,
    rename,
    copytruncate,
    delete,
    delete_directory,
    move_directory,
)
