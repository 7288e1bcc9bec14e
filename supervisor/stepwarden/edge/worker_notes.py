"""What the database could not take of workers, in one file of the runtime directory.

An operator's stop must hold though the disk is full and the daemon is killed: while the database
takes nothing, the records of all workers lie here. They go when it has taken them. They do not
outlive a reboot: a full disk that is still full then has lost what was said meanwhile.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from stepwarden.edge.private_file import SCRATCH, free_name, read_small, write_private
from stepwarden.edge.state_image import StateImage
from stepwarden.edge.state_records import StampedWorker, workers_from_json, workers_json

NAME = "worker-notes.json"
KEEP_ASIDE = 5
"""Unreadable ones are kept, so many at most; the oldest go first."""

_MAX_BYTES = 64 << 20
_ASIDE = ".unreadable"


class WorkerNotes:
    """The file below `runtime_dir`, from `image`. Methods may be called from any thread."""

    def __init__(self, runtime_dir: Path, image: StateImage) -> None:
        self.path = runtime_dir / NAME
        self._image = image
        self._lock = threading.Lock()
        self._written = ""
        self._there = True

    def read(self, wall: datetime) -> tuple[list[StampedWorker], str]:
        """What an earlier daemon left, and a sentence where it cannot be read."""
        with suppress(OSError):
            self.path.with_name(self.path.name + SCRATCH).unlink()
        try:
            return workers_from_json(read_small(self.path, _MAX_BYTES)), ""
        except FileNotFoundError:
            return [], ""
        except (OSError, ValueError) as error:
            text = f"the notes of workers {self.path} cannot be read ({error})"
            return [], f"{text}; {self._put_aside(wall)}"

    def keep(self) -> None:
        """Write down every worker as it is now. OSError where that fails."""
        with self._lock:
            text = workers_json(self._image.stamped_workers())
            if text == self._written and self._there:
                return
            self._there = True
            self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            write_private(self.path, text)
            self._written = text

    def settle(self) -> None:
        """The database has taken all that was noted before: the file goes, unless more came."""
        with self._lock:
            if self._there and not self._image.workers_pending():
                with suppress(OSError):
                    self.path.unlink(missing_ok=True)
                    self._there = False

    def _put_aside(self, wall: datetime) -> str:
        aside = free_name(self.path.with_name(self.path.name + _ASIDE), wall)
        try:
            os.rename(self.path, aside)
        except OSError as error:
            return f"nor kept aside: {error}"
        kept = sorted(p for p in self.path.parent.iterdir() if p.name.startswith(NAME + _ASIDE))
        for old in kept[:-KEEP_ASIDE]:
            with suppress(OSError):
                old.unlink()
        return f"it was kept as {aside}"
