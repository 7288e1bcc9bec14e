"""A second copy of the notes of lives, a small file each in the runtime directory.

Lives matter only within one boot, and so does the runtime directory (tmpfs). A full or stuck disk
cannot keep a life from being noted here, and a damaged database leaves these: the next daemon
still finds the workers that run, and doubles none.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from stepwarden.edge.private_file import SCRATCH, free_name, read_small, write_private
from stepwarden.edge.state_records import StampedLife, life_from_json, life_json

DIRECTORY = "life-notes"
KEEP_ASIDE = 20
"""Files that cannot be read are kept, so many at most; the oldest go first."""

_SUFFIX, _ASIDE = ".json", ".unreadable"


@dataclass(frozen=True, slots=True)
class MirrorContent:
    """What was found: notes, and a sentence for each file that could not be read."""

    lives: list[StampedLife]
    bad: list[str]


class LifeMirror:
    """The notes below `runtime_dir`. Methods raise OSError; each is quick where that is tmpfs."""

    def __init__(self, runtime_dir: Path) -> None:
        self.directory = runtime_dir / DIRECTORY

    def write(self, life: StampedLife) -> None:
        """Write or replace a note; a reader sees the old or the new one whole."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(self._path(life.record.incarnation), life_json(life))

    def remove(self, incarnation: str) -> None:
        """The life is over; nothing happens where no note of it is there."""
        self._path(incarnation).unlink(missing_ok=True)

    def read(self, boot_id: str, wall: datetime) -> MirrorContent:
        """The notes of this boot. Others and half-written ones go; bad ones are set aside."""
        content = MirrorContent([], [])
        with suppress(FileNotFoundError):
            for path in sorted(self.directory.iterdir()):
                if path.suffix == SCRATCH:
                    path.unlink(missing_ok=True)
                elif path.suffix == _SUFFIX:
                    self._read_one(path, boot_id, wall, content)
        return content

    def _read_one(self, path: Path, boot_id: str, wall: datetime, content: MirrorContent) -> None:
        try:
            life = life_from_json(read_small(path))
            if life.record.incarnation != path.stem:
                raise ValueError("it tells of another life than its name does")
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            aside = self._put_aside(path, wall)
            content.bad.append(
                f"the note of a life {path} cannot be read ({error}); it was kept as {aside}"
            )
            return
        if life.record.boot_id == boot_id:
            content.lives.append(life)
        else:
            path.unlink()  # its processes are gone for sure

    def _put_aside(self, path: Path, wall: datetime) -> Path:
        aside = free_name(path.with_name(path.name + _ASIDE), wall)
        os.rename(path, aside)
        kept = [p for p in self.directory.iterdir() if _ASIDE in p.name]
        for old in sorted(kept, key=lambda p: p.name.rpartition(_ASIDE)[2])[:-KEEP_ASIDE]:
            with suppress(OSError):
                old.unlink()
        return aside

    def _path(self, incarnation: str) -> Path:
        if not incarnation or "/" in incarnation or "\0" in incarnation:
            raise OSError(f"{incarnation!r} cannot be the name of a file")
        return self.directory / f"{incarnation}{_SUFFIX}"
