"""The history of a state directory, read without its daemon; nothing in it is made or changed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from stepwarden.edge import journal_file, state_file
from stepwarden.edge.state_copy import open_unchanged
from stepwarden.edge.views import EVERYTHING, EventFilter, RecordedEvent


def read_history(
    directory: Path, limit: int, wanted: EventFilter = EVERYTHING
) -> tuple[Path, Sequence[RecordedEvent]]:
    """Its file, and the newest events that are `wanted`, oldest first.

    FileNotFoundError where there is none; OSError or ValueError, with the path in its text, where
    it cannot be read.
    """
    path = state_file.present(directory)
    try:
        os.lstat(path)
        with open_unchanged(path) as database:
            return path, journal_file.select(database, limit, wanted)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise OSError(f"{path}: {error.strerror or error}") from error
    except Exception as error:
        raise ValueError(f"{path}: {error}") from error
