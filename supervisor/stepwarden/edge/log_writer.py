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
from typing import Protocol, TextIO

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline
from stepwarden.waiting import timeout_for

MAX_LINES = 10_000


def plain_note(dropped: int) -> str:
    """Says in a log for people how much is missing at this place."""
    return f"stepwarden: {dropped} pieces of log were dropped, nobody took them\n"


def json_note(dropped: int) -> str:
    """The same in a log of JSON lines."""
    event = plain_note(dropped).strip()
    return json.dumps({"event": event, "level": "warning", "dropped": dropped}) + "\n"


class Output(Protocol):
    """Where a log goes, used by the thread of a `LogWriter`; `hurry` and `end` by any thread."""

    at_once: int
    """How many records it takes together."""

    def put(self, text: str) -> None:
        """Write; may block, raises nothing."""

    def hurry(self) -> None:
        """Try at once what waits."""

    def end(self) -> None:
        """Wait for nothing any more."""


class LogStream:
    """A log into a text stream, such as standard error. What it does not take is lost."""

    at_once = 1

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def put(self, text: str) -> None:
        """Write and flush."""
        with suppress(OSError, ValueError):
            self._stream.write(text)
            self._stream.flush()

    def hurry(self) -> None:
        """Nothing ever waits in a stream."""

    def end(self) -> None:
        """Nothing to end: a blocked stream stays blocked, and its thread ends with the process."""


class LogWriter:
    """A file-like object for a logger. `close` gives what is queued a moment.

    `note` words what was dropped.
    """

    def __init__(self, out: Output, clock: Clock, note: Callable[[int], str] = plain_note) -> None:
        self._out = out
        self._clock = clock
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
        self._out.hurry()
        with suppress(queue.Full):
            self._lines.put_nowait("")

    def close(self, seconds: float = 2.0) -> None:
        """Write what is queued, for at most `seconds`."""
        self._out.end()
        deadline = Deadline.after(self._clock.monotonic(), seconds)
        with suppress(queue.Full):
            self._lines.put(None, timeout=timeout_for(deadline, self._clock))
        self._thread.join(timeout_for(deadline, self._clock))

    def _run(self) -> None:
        more = True
        while more:
            text, more = self._next()
            with self._counting:
                dropped, self._dropped = self._dropped, 0
            if dropped:
                text = self._note(dropped) + text
            self._out.put(text)

    def _next(self) -> tuple[str, bool]:
        """What is to be written together, and whether there may be more."""
        line = self._lines.get()
        lines: list[str] = []
        with suppress(queue.Empty):
            while line is not None:
                lines.append(line)
                if len(lines) >= self._out.at_once:
                    break
                line = self._lines.get_nowait()
        return "".join(lines), line is not None
