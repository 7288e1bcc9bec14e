"""The log behind a queue: whoever reads our log, or does not, never holds up the loop.

A log that goes into a full pipe (a paused pager, a stuck collector) blocks its writer, and a
closed one raises in it; a disk may hang. Each would stop supervision. So a thread of its own
writes; when it falls behind, the newest lines are dropped and counted, and the next line that gets
through says so.
"""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from stepwarden.clock import SystemClock
from stepwarden.core.deadline import Deadline
from stepwarden.edge.log_file import LogFile
from stepwarden.waiting import timeout_for

MAX_LINES = 10_000
_BATCH_LINES = 500  # written to a file at once


def plain_note(dropped: int) -> str:
    """Says in a log for people how much is missing at this place."""
    return f"stepwarden: {dropped} pieces of log were dropped, nobody took them\n"


def json_note(dropped: int) -> str:
    """The same in a log of JSON lines."""
    event = plain_note(dropped).strip()
    return json.dumps({"event": event, "level": "warning", "dropped": dropped}) + "\n"


class LogWriter:
    """A file-like object for a logger. `close` gives what is queued a moment.

    `out`: a stream, or a file that log rotation may take away. `note` words what was dropped.
    """

    def __init__(self, out: TextIO | LogFile, note: Callable[[int], str] = plain_note) -> None:
        self._out = out
        self._note = note
        self._lines: queue.Queue[str | None] = queue.Queue(MAX_LINES)
        self._dropped = 0
        self._counting = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def write(self, text: str) -> int:
        """Queue a text; never waits, never raises."""
        try:
            self._lines.put_nowait(text)
        except queue.Full:
            with self._counting:
                self._dropped += 1
        return len(text)

    def flush(self) -> None:
        """Nothing to do: the thread flushes."""

    def reopen(self) -> None:
        """Make the file anew where it is gone, and try at once what waits for it."""
        if isinstance(self._out, LogFile):
            self._out.hurry()
            with suppress(queue.Full):
                self._lines.put_nowait("")

    def close(self, seconds: float = 2.0) -> None:
        """Write what is queued, for at most `seconds`."""
        if isinstance(self._out, LogFile):
            self._out.end()
        clock = SystemClock()
        deadline = Deadline.after(clock.monotonic(), seconds)
        with suppress(queue.Full):
            self._lines.put(None, timeout=timeout_for(deadline, clock))
        self._thread.join(timeout_for(deadline, clock))

    def _run(self) -> None:
        more = True
        while more:
            text, more = self._next()
            with self._counting:
                dropped, self._dropped = self._dropped, 0
            if dropped:
                text = self._note(dropped) + text
            if isinstance(self._out, LogFile):
                self._out.put(text)
            else:
                self._put(self._out, text)

    def _next(self) -> tuple[str, bool]:
        """What is to be written together, and whether there may be more."""
        first = self._lines.get()
        lines: list[str] = []
        while first is not None:
            lines.append(first)
            if not isinstance(self._out, LogFile) or len(lines) >= _BATCH_LINES:
                break
            try:
                first = self._lines.get_nowait()
            except queue.Empty:
                break
        return "".join(lines), first is not None

    def _put(self, stream: TextIO, text: str) -> None:
        with suppress(OSError, ValueError):
            stream.write(text)
            if self._lines.empty():
                stream.flush()
