"""The end of what a short command prints, in a file in memory.

A pipe would break the command's next print when the daemon dies, and stop it when the daemon
stands still. A file in memory does neither; it is cut back while the command runs, and closed to
further writing once it has ended, so that what it leaves behind cannot fill it.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress

KEPT_BYTES = 4096
"""So much of the end is kept for the operator."""

CUT_BYTES = 1 << 20
"""A file that has grown beyond this is cut back to its end."""


class CommandOutput:
    """Where a command's output goes. OSError where no descriptor is left."""

    def __init__(self) -> None:
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        self._descriptor = os.memfd_create("stepwarden-command", flags)
        # So that after each cut the next write goes to the new end.
        fcntl.fcntl(self._descriptor, fcntl.F_SETFL, os.O_APPEND)
        self._cut = b""

    @property
    def descriptor(self) -> int:
        """What the command is to have as its output; ours to close."""
        return self._descriptor

    def trim(self) -> None:
        """Keep the end alone where it has grown large."""
        if os.fstat(self._descriptor).st_size > CUT_BYTES:
            self._cut = self._end()
            os.ftruncate(self._descriptor, 0)

    def close(self) -> str:
        """The last lines, as text that any terminal can show; nothing can be written any more."""
        with suppress(OSError):  # a kernel without seals
            fcntl.fcntl(self._descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
        try:
            return readable(self._end())
        finally:
            os.close(self._descriptor)

    def _end(self) -> bytes:
        size = os.fstat(self._descriptor).st_size
        tail = os.pread(self._descriptor, KEPT_BYTES, max(0, size - KEPT_BYTES))
        return (self._cut + tail)[-KEPT_BYTES:]


def readable(raw: bytes) -> str:
    """Any bytes as lines of printable text: the rest is written as escapes."""
    lines = raw.decode("utf-8", "backslashreplace").replace("\r\n", "\n").split("\n")
    return "\n".join(map(_printable, lines)).strip()


def _printable(line: str) -> str:
    shown = (c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line)
    return "".join(shown).rstrip()
