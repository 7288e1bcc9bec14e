"""Small private files that are whole or absent: written beside and renamed, mode 0600."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path

MAX_BYTES = 1 << 20
"""A file that is longer is none of these."""

SCRATCH = ".new"


def write_private(path: Path, text: str) -> None:
    """Write or replace a file; a reader sees the old or the new one whole. OSError if it cannot.

    Not synced: for tmpfs, and for what need not outlive a power cut.
    """
    scratch = path.with_name(path.name + SCRATCH)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(scratch, flags, 0o600)
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o600)  # whatever the umask, and whoever made it before
            file.write(text)
        os.replace(scratch, path)
    except BaseException:
        with suppress(OSError):
            scratch.unlink()
        raise


def read_small(path: Path, most: int = MAX_BYTES) -> str:
    """The text of a file of at most `most` bytes. OSError or ValueError otherwise."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    with open(os.open(path, flags), "rb") as file:
        raw = file.read(most + 1)
    if len(raw) > most:
        raise ValueError(f"longer than {most} bytes")
    return raw.decode("utf-8")


def free_name(path: Path, wall: datetime) -> Path:
    """A name beside `path` that begins with its own, tells when, and never is one that is taken.

    Sorted by name they are sorted by time.
    """
    stem = f"{path.name}-{wall.strftime('%Y%m%dT%H%M%S')}"
    numbers = [_number(name, stem) for name in os.listdir(path.parent) if name.startswith(stem)]
    # Behind the highest, not in a gap that one which was removed has left.
    return path.with_name(f"{stem}-{max(numbers) + 1:03}" if numbers else stem)


def _number(name: str, stem: str) -> int:
    digits = name[len(stem) + 1 : len(stem) + 4]
    return int(digits) if digits.isdecimal() else 1
