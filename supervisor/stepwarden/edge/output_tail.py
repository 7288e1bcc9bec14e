"""The last lines of a worker's captured output, made safe for a terminal and for a report."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import count
from pathlib import Path

from stepwarden.edge.log_program import CURRENT, former, open_log

MAX_BYTES = 64 << 10

SHOWN_LINES = 20
SHOWN_CHARACTERS = 500


def tail(directory: Path, lines: int, max_bytes: int = MAX_BYTES) -> list[str]:
    """The last `lines` lines of current.log and, where that is short, of its forerunners.

    Never reads more than `max_bytes`; what cannot be read is left out. Bytes that are no UTF-8
    are replaced, of a line that was written over (progress bars) the last state is shown, and
    control characters become visible. Reads files: call it in a thread.
    """
    data, whole = _last_bytes(str(directory), max_bytes)
    rows = data.decode("utf-8", "replace").split("\n")
    if not rows[-1]:
        rows.pop()
    if not whole and len(rows) > 1 and "\r" not in rows[0]:
        del rows[0]  # its beginning is missing, and what is shown of it is not the last state
    return [visible(last_state(row)) for row in rows[-lines:]] if lines > 0 else []


def last_lines(directory: Path) -> list[str]:
    """What `status` shows: the last SHOWN_LINES lines, each of at most SHOWN_CHARACTERS."""
    return [_shortened(line) for line in tail(directory, SHOWN_LINES)]


def _shortened(line: str) -> str:
    return line if len(line) <= SHOWN_CHARACTERS else line[:SHOWN_CHARACTERS] + " ..."


def last_state(row: str) -> str:
    """What a terminal shows of a line that went back to its beginning, without what lay below."""
    return row.rstrip("\r").rpartition("\r")[2]


def visible(text: str) -> str:
    """Everything that a terminal would obey, hide or turn around becomes an escape like \\x1b."""
    return "".join(map(_shown, text))


def _shown(character: str) -> str:
    if character.isprintable() or character == "\t":
        return character
    return character.encode("unicode_escape").decode("ascii")


def _last_bytes(directory: str, most: int) -> tuple[bytes, bool]:
    """The end of the output, and whether it is all of it."""
    data = b""
    paths = (former(directory, number) if number else _current(directory) for number in count())
    for path in paths:
        part, whole = _end_of(path, most - len(data))
        if part is None:
            break
        data = part + data
        if not whole:
            return data, False
    return data, True


def _current(directory: str) -> str:
    return os.path.join(directory, CURRENT)


def _end_of(path: str, most: int) -> tuple[bytes | None, bool]:
    """Its last `most` bytes and whether that is all; None where there is no such file."""
    with suppress(OSError):
        descriptor = open_log(path, os.O_RDONLY)
        try:
            size = os.fstat(descriptor).st_size
            part = os.pread(descriptor, most, max(0, size - most)) if most > 0 else b""
        finally:
            os.close(descriptor)
        return part, size <= most
    return None, True
