"""An engine's own watchdog, as many engines have it: one constant for every step.

It is here to be compared with: it cannot know the batch, and it cannot tell a slow step from a
dead one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline


class EngineWatchdog:
    """Calls `expired(seconds)` from its own thread when an armed step outlasts `seconds`.

    At most once for each step. `fired` counts the calls.
    """

    def __init__(self, seconds: float, expired: Callable[[float], None], clock: Clock) -> None:
        self.seconds = seconds
        self.fired = 0
        self._expired = expired
        self._clock = clock
        self._changed = threading.Condition()
        self._deadline = Deadline.never()
        self._closed = False
        self._thread = threading.Thread(target=self._watch, name="engine-watchdog", daemon=True)
        self._thread.start()

    def arm(self) -> None:
        """A step begins now."""
        with self._changed:
            self._deadline = Deadline.after(self._clock.monotonic(), self.seconds)
            self._changed.notify()

    def disarm(self) -> None:
        """The step ended. The thread is not woken: it sees for itself when its wait is over."""
        with self._changed:
            self._deadline = Deadline.never()

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                now = self._clock.monotonic()
                late = self._deadline.passed(now)
                if late:
                    self._deadline = Deadline.never()
                    self.fired += 1
                else:
                    self._changed.wait(self._deadline.remaining(now))
            if late:
                self._expired(self.seconds)
