"""What ties a process to an incarnation after all ancestry is lost: its environment, its page."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from pathlib import Path

from stepwarden_proto.page import ENV_INCARNATION

from stepwarden.core.evidence import ProcessId
from stepwarden.edge.process_probe import identify

_PER_TURN = 4  # processes looked at before the loop gets its turn; each takes up to 1 ms


async def search(
    suspects: Iterable[ProcessId], incarnation: str, page_dir: Path | None
) -> set[ProcessId]:
    """Those of `suspects` that carry the incarnation's marker or use a file in `page_dir`."""
    found: set[ProcessId] = set()
    for number, process in enumerate(suspects):
        if number % _PER_TURN == _PER_TURN - 1:
            await asyncio.sleep(0)
        if is_marked(process, incarnation) or (
            page_dir is not None and maps_file_below(process, page_dir)
        ):
            found.add(process)
    return found


def is_marked(process: ProcessId, incarnation: str) -> bool:
    """True where its environment names this incarnation; False where it may not be read.

    Some engines overwrite their environment with a process title: False is no proof.
    """
    marker = os.fsencode(f"{ENV_INCARNATION}={incarnation}")
    environment = _read(f"/proc/{process.pid:d}/environ")
    return marker in environment.split(b"\0") and identify(process.pid) == process


def maps_file_below(process: ProcessId, directory: Path) -> bool:
    """True where it maps a file below `directory`, as agents do with their pages.

    A file that is only open is no sign: an operator may be looking at it.
    """
    prefix = os.fsencode(os.path.realpath(directory)) + b"/"
    return prefix in _read(f"/proc/{process.pid:d}/maps") and identify(process.pid) == process


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
