"""A real terminal of 80x24 for a program under test: a pty, and what would be seen on it.

with Terminal([sys.executable, "-m", "stepwarden", "top"], env) as terminal:
    terminal.wait_for("HEALTHY")
    terminal.press("q")
    assert terminal.wait() == 0
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

import pyte

_IN_FRONT = (
    "import fcntl, os, sys, termios;"
    "fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
    "os.execvp(sys.argv[1], sys.argv[1:])"
)
# Questions and modes of newer terminals, which the emulator would print.
_UNKNOWN = re.compile(rb"\x1b\[[>=<?][0-9;]*(?:u|\$p)|\x1b\[<u")


class Terminal:
    """Its program is the leader of a session of its own, as under ssh."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], *, columns: int = 80, rows: int = 24
    ) -> None:
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self.raw = b""
        self._master, self._slave = pty.openpty()
        self._resize(columns, rows)
        self.attributes: Any = termios.tcgetattr(self._slave)
        self.process = subprocess.Popen(
            [sys.executable, "-c", _IN_FRONT, *command],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env={"TERM": "xterm-256color", "LANG": "C.UTF-8", **env},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            print("\n".join(self.lines()), file=sys.stderr)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(20)
        self.close()

    def lines(self) -> list[str]:
        """What is seen now."""
        with self._lock:
            return [line.rstrip() for line in self._screen.display]

    def text(self) -> str:
        """What is seen now, as one text."""
        return "\n".join(self.lines())

    def wait_for(self, pattern: str, limit: float = 40.0) -> str:
        """What is seen, as soon as the regular expression is found in it."""
        end = time.monotonic() + limit
        while not re.search(pattern, self.text()):
            assert time.monotonic() < end, f"{pattern!r} was not seen:\n{self.text()}"
            assert self.process.poll() is None, f"it ended:\n{self.text()}"
            time.sleep(0.05)
        return self.text()

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self._master, keys.encode())

    def wait(self, limit: float = 20.0) -> int:
        """The exit code."""
        return self.process.wait(limit)

    def restored(self) -> bool:
        """The terminal's modes are as they were before."""
        return bool(termios.tcgetattr(self._slave) == self.attributes)

    def stall(self) -> None:
        """Read nothing any more, like a connection that hangs."""
        self._closing.set()
        self._reader.join(20)

    def resize(self, columns: int, rows: int) -> None:
        """The window gets another size."""
        with self._lock:
            self._screen.resize(rows, columns)
        self._resize(columns, rows)

    def close(self) -> None:
        """The window is closed: its program gets SIGHUP, and nothing can be written any more."""
        self._closing.set()
        self._reader.join(20)
        for name in ("_slave", "_master"):
            number = getattr(self, name)
            setattr(self, name, -1)
            if number >= 0:
                os.close(number)

    def _resize(self, columns: int, rows: int) -> None:
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def _read(self) -> None:
        with suppress(OSError):
            while not self._closing.is_set():
                if not select.select([self._master], [], [], 0.1)[0]:
                    continue
                data = os.read(self._master, 65536)
                with self._lock:
                    self.raw += data
                    self._stream.feed(_UNKNOWN.sub(b"", data))
