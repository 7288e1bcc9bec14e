"""What is usual, read from a state directory without its daemon; nothing in it is changed."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from stepwarden.edge import state_file, state_tables
from stepwarden.edge.state_copy import open_unchanged
from stepwarden.edge.state_schema import version_of

_FIRST_VERSION = 3
"""Of the database that holds what was learned."""


def read_learned(directory: Path) -> dict[str, str]:
    """What was kept, by the key of its subject, what was used last at the end.

    {} of a database from before there was any.

    FileNotFoundError where there is none; OSError or ValueError, with the path in its text, where
    it cannot be read.
    """
    path = state_file.present(directory)
    try:
        with open_unchanged(path) as database:
            if version_of(database) < _FIRST_VERSION:
                return {}
            found = state_tables.load_learned(database)
    except FileNotFoundError:
        raise
    except (sqlite3.Error, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error
    except OSError as error:
        raise OSError(f"{path}: {error.strerror or error}") from error
    by_use = sorted(found.items(), key=lambda pair: pair[1].used)
    return {subject: record.body for subject, record in by_use}
