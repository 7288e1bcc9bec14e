"""Notes of running lives, a small file each, so that the next daemon can end what one left behind.

A note is written before the process exists and again when its pid is known. It is removed when
every process of that life is confirmed gone. A daemon that starts ends the lives it finds noted,
and starts a worker when its old life is gone: no worker is ever doubled.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from stepwarden.edge.host import this_host


@dataclass(frozen=True, slots=True)
class LifeRecord:
    """What is needed to find the processes of a life again. `pid` 0: not known yet."""

    worker: str
    incarnation: str
    page_dir: str
    boot_id: str
    pid: int = 0
    start_ticks: int = 0


class LifeRecords:
    """The notes below one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def write(self, record: LifeRecord) -> None:
        """Write or replace a note; a reader sees the old or the new one whole."""
        path = self._path(record.incarnation)
        scratch = path.with_suffix(".new")
        scratch.write_text(json.dumps(asdict(record)), encoding="utf-8")
        os.replace(scratch, path)

    def remove(self, incarnation: str) -> None:
        """Every process of this life is gone."""
        with suppress(OSError):
            self._path(incarnation).unlink()

    def left_behind(self) -> list[LifeRecord]:
        """Lives of this boot that an earlier daemon did not see to their end."""
        found = []
        boot = this_host().boot
        for path in sorted(self._directory.glob("*.json")):
            record = _read(path)
            if record is None or record.boot_id != boot:
                path.unlink(missing_ok=True)  # of another boot: its processes are gone for sure
            else:
                found.append(record)
        for path in self._directory.glob("*.new"):
            path.unlink(missing_ok=True)
        return found

    def _path(self, incarnation: str) -> Path:
        return self._directory / f"{incarnation}.json"


def _read(path: Path) -> LifeRecord | None:
    try:
        return LifeRecord(**json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
