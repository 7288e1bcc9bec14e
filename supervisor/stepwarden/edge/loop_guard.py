"""Ends a daemon whose verdict loop stands still for too long, where nobody else would.

A service manager's watchdog does the same, sooner. Without one, a daemon that stands still for ever
would hold its sockets and its lock and watch nobody. Once it has ended another can be started,
which takes over the workers that live.

It counts looks of its own, not time: while the whole process is stopped (SIGSTOP, a debugger, a
paused machine) this thread stands as well, and the loop is not to blame. Whoever holds the
interpreter lock for ever stops this thread too; then only the client's own time-out tells.
"""

from __future__ import annotations

import faulthandler
import os
import threading
from collections.abc import Callable

from stepwarden.clock import Clock
from stepwarden.core.deadline import elapsed

LOOK_SECONDS = 1.0
MOST_OF_A_LOOK = 2 * LOOK_SECONDS
"""However long ago the last look was, no more is counted: we stood still ourselves."""

LAST_WORDS_SECONDS = 10.0
"""Whatever becomes of the last words, the process ends so long after they have begun."""


class LoopGuard:
    """Calls `end(seconds)` in its own thread when `stamp()` has not changed for `limit` seconds.

    `stamp`: the instant of the loop's last turn. `limit` 0: never.
    """

    def __init__(
        self,
        stamp: Callable[[], float],
        limit: float,
        end: Callable[[float], None],
        clock: Clock,
    ) -> None:
        self._stamp = stamp
        self._limit = limit
        self._end = end
        self._clock = clock
        self._seen = stamp()
        self._looked_at = clock.monotonic()
        self._stood = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loop-guard", daemon=True)

    def start(self) -> None:
        """Begin to look, from now on."""
        self._seen = self._stamp()
        self._looked_at = self._clock.monotonic()
        if self._limit > 0.0:
            self._thread.start()

    def stop(self) -> None:
        """Look no more; does not wait."""
        self._stopping.set()

    def look(self) -> bool:
        """One look; True where the limit is reached."""
        now, stamp = self._clock.monotonic(), self._stamp()
        since, self._looked_at = self._looked_at, now
        if stamp != self._seen:
            self._seen, self._stood = stamp, 0.0
            return False
        self._stood += min(elapsed(since, now), MOST_OF_A_LOOK)
        return self._stood >= self._limit

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            if self.look():
                self._end(self._stood)
                return


def end_surely(code: int, last_words: Callable[[], None]) -> None:
    """End this process with `code` once `last_words` has returned, without cleaning up.

    Should the last words hang, with the interpreter lock held or not, it ends with 1 after
    LAST_WORDS_SECONDS all the same.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
    faulthandler.dump_traceback_later(LAST_WORDS_SECONDS, exit=True, file=nowhere)
    try:
        last_words()
    finally:
        os._exit(code)


def stack_of(thread: int) -> list[str]:
    """What the thread with this identifier is at, the innermost call first.

    By faulthandler, which reads no source files and takes no locks: a disk or a lock may be what
    the thread stands at.
    """
    with open(os.memfd_create("stack"), "w+b", buffering=0) as kept:
        faulthandler.dump_traceback(kept.fileno(), all_threads=True)
        kept.seek(0)
        text = kept.read().decode("utf-8", "replace")
    for part in text.split("\n\n"):
        head, _, calls = part.partition("\n")
        if f"0x{thread:016x}" in head:
            return [line.strip() for line in calls.splitlines()]
    return []
