"""Reading a file that somebody else writes: nothing here waits, and nothing trusts the file."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

MAX_CONFIG_BYTES = 4 * 1024 * 1024
"""Of a configuration file; one with thousands of workers stays far below this.

Whoever loads it and whoever watches it read so much: by that they agree on its identity.
"""


class NotRegularError(OSError):
    """A pipe, a device, a directory or a socket has this name."""

    def __init__(self) -> None:
        super().__init__("is not a regular file")


def read_regular(path: Path, most: int) -> bytes:
    """The file's first `most` bytes and one more, which tells that it is longer.

    OSError where it cannot be opened or read, NotRegularError where it is something else than a
    regular file. Symbolic links are followed, anew with each call.
    """
    # A FIFO or a device must be recognised, never waited for.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise NotRegularError
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(most + 1)
    finally:
        os.close(descriptor)


def identity(data: bytes) -> str:
    """Tells one content from another; equal for equal contents, never ""."""
    return hashlib.sha256(data).hexdigest()
