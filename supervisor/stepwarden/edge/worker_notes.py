"""The second copy of what is kept of workers, in one file of the runtime directory.

An operator's stop must hold though the disk is full and the daemon is killed, and though the
database is damaged while no daemon runs: the records of all workers lie here as well. They do not
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
            workers = self._image.stamped_workers()
            text = workers_json(workers)
            if text == self._written:
                return
            if not workers:
                self.path.unlink(missing_ok=True)
                self._written = text
                return
            self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            write_private(self.path, text)
            self._written = text

    def keep_again(self) -> None:
        """As `keep`, also where it was written before: the file may be gone."""
        with self._lock:
            self._written = ""
        self.keep()

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
