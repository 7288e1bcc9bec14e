"""The notes of lives that release 0.1 kept: `state_dir/lives/*.json`. Read once and taken away."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from stepwarden.edge.private_file import read_small
from stepwarden.edge.state_records import LifeRecord

DIRECTORY = "lives"


def old_notes(state_dir: Path, boot_id: str) -> tuple[list[LifeRecord], list[str]]:
    """Lives of this boot that release 0.1 noted, and a sentence for each bad note."""
    lives, bad = [], []
    for path in _files(state_dir):
        try:
            record = _record(json.loads(read_small(path)))
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            bad.append(f"the note of a life {path} cannot be read: {error}")
            continue
        if record.boot_id == boot_id:
            lives.append(record)
    return lives, bad


def remove_old_notes(state_dir: Path) -> None:
    """They are in the database now. What cannot be read stays."""
    for path in _files(state_dir):
        with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
            _record(json.loads(read_small(path)))
            path.unlink()
    for path in (state_dir / DIRECTORY).glob("*.new"):
        with suppress(OSError):
            path.unlink()
    with suppress(OSError):
        (state_dir / DIRECTORY).rmdir()


def _files(state_dir: Path) -> Sequence[Path]:
    try:
        return sorted((state_dir / DIRECTORY).glob("*.json"))
    except OSError:
        return ()


def _record(found: dict[str, object]) -> LifeRecord:
    texts = {key: found[key] for key in ("worker", "incarnation", "page_dir", "boot_id")}
    numbers = {key: found.get(key, 0) for key in ("pid", "start_ticks")}
    if not all(isinstance(text, str) for text in texts.values()):
        raise ValueError("it is not a note of release 0.1")
    if not all(type(number) is int for number in numbers.values()):
        raise ValueError("it is not a note of release 0.1")
    return LifeRecord(
        worker=str(texts["worker"]),
        incarnation=str(texts["incarnation"]),
        boot_id=str(texts["boot_id"]),
        runner="spawn",
        page_dir=str(texts["page_dir"]),
        token="",
        spawned_at=0.0,
        pid=int(str(numbers["pid"])),
        start_ticks=int(str(numbers["start_ticks"])),
    )
