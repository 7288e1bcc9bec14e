"""Standard error behind a queue: whoever reads our log, or does not, never holds up the loop.

A log that goes into a full pipe (a paused pager, a stuck collector) blocks its writer, and a
closed one raises in it. Both would stop supervision. So a thread of its own writes; when it falls
behind, the newest lines are dropped and counted, and the next line that gets through says so.
"""

from __future__ import annotations

import queue
import threading
from contextlib import suppress
from typing import TextIO

MAX_LINES = 10_000


class LogWriter:
    """A file-like object for a logger. `close` gives what is queued a moment."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lines: queue.Queue[str | None] = queue.Queue(MAX_LINES)
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def write(self, text: str) -> int:
        """Queue a text; never waits, never raises."""
        try:
            self._lines.put_nowait(text)
        except queue.Full:
            self._dropped += 1
        return len(text)

    def flush(self) -> None:
        """Nothing to do: the thread flushes."""

    def close(self, seconds: float = 2.0) -> None:
        """Write what is queued, for at most `seconds`."""
        with suppress(queue.Full):
            self._lines.put(None, timeout=seconds)
        self._thread.join(seconds)

    def _run(self) -> None:
        while (text := self._lines.get()) is not None:
            dropped, self._dropped = self._dropped, 0
            if dropped:
                text = f"stepwarden: {dropped} pieces of log were dropped, nobody took them\n{text}"
            with suppress(OSError, ValueError):
                self._stream.write(text)
                if self._lines.empty():
                    self._stream.flush()
