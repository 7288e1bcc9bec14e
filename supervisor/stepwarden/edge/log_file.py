"""The supervisor's own log in a file that others rotate.

The file is opened by its path for each batch of records and closed again. So whatever rotation
does (renames it, with or without a new one, empties it, deletes it or its directory), the next
record goes where the path leads now, no signal is needed, and no deleted file is held open.
"""

from __future__ import annotations

import os
import select
import threading
from contextlib import suppress
from pathlib import Path

from stepwarden.edge.log_program import DIRECTORY_MODE, FILE_MODE, open_log
from stepwarden.naming import printable

RETRY_SECONDS = 1.0
"""How often a file that takes nothing is tried again."""

_APPEND = os.O_WRONLY | os.O_APPEND
_STDERR = 2


class LogFile:
    """Appends to the plain file at `path`, for one thread; blocks that thread alone.

    A file that is not there is made with mode 0640 whatever the umask, its directory with 0750.
    """

    at_once = 500
    """Records given to one `put`: the file is opened for each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._left = memoryview(b"")
        self._again = threading.Event()
        self._ended = False
        self._said = ""

    def put(self, text: str) -> None:
        """Append; returns when the file has taken it, or after one try once `end` was called."""
        self._left = memoryview(text.encode("utf-8", "backslashreplace"))
        while not self._taken() and not self._ended:
            self._again.wait(RETRY_SECONDS)
            self._again.clear()

    def hurry(self) -> None:
        """Try at once what waits; from any thread."""
        self._again.set()

    def end(self) -> None:
        """From now on a file that takes nothing is not waited for; from any thread."""
        self._ended = True
        self._again.set()

    def _taken(self) -> bool:
        try:
            self._append()
        except OSError as error:
            self._say(f"the log cannot be written: {error.strerror or error}")
            return False
        self._said = ""
        return True

    def _append(self) -> None:
        descriptor = self._opened()
        try:
            while self._left:
                self._left = self._left[os.write(descriptor, self._left) :]
        finally:
            os.close(descriptor)

    def _opened(self) -> int:
        with suppress(FileNotFoundError):
            return open_log(str(self._path), _APPEND)
        os.makedirs(self._path.parent, DIRECTORY_MODE, exist_ok=True)
        try:
            descriptor = open_log(str(self._path), _APPEND | os.O_CREAT | os.O_EXCL)
        except FileExistsError:  # somebody else has made it meanwhile
            return open_log(str(self._path), _APPEND)
        with suppress(OSError):  # a file system without modes
            os.fchmod(descriptor, FILE_MODE)
        return descriptor

    def _say(self, text: str) -> None:
        """Once for each trouble, on standard error where that takes it at once."""
        if text == self._said:
            return
        self._said = text
        line = printable(f"stepwarden: {self._path}: {text}; up to 10000 records wait")
        ready = select.poll()
        ready.register(_STDERR, select.POLLOUT)
        with suppress(OSError):
            if ready.poll(0):
                os.write(_STDERR, line.encode() + b"\n")
