"""The daemon's own events, as `stepwarden events --follow --json` prints them."""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Callable

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline
from stepwarden.errors import StepwardenError

Happening = dict[str, object]


class StoryFailedError(StepwardenError):
    """The demonstration did not go as it must; the text says what was missing."""


class Feed:
    """Reads the lines of a running `events` command; `show` gets each event once, in order."""

    def __init__(
        self, command: subprocess.Popen[str], show: Callable[[Happening], None], clock: Clock
    ) -> None:
        self._show = show
        self._clock = clock
        self._queue: queue.Queue[Happening | None] = queue.Queue()
        self._command = command
        threading.Thread(target=self._read, name="events", daemon=True).start()

    def wait(self, wanted: Callable[[Happening], bool], seconds: float, missing: str) -> Happening:
        """The next event that `wanted` accepts; StoryFailedError: none came within `seconds`."""
        found = self.wait_or_none(wanted, seconds)
        if found is None:
            raise StoryFailedError(f"{missing} did not come within {seconds:g} s")
        return found

    def wait_or_none(self, wanted: Callable[[Happening], bool], seconds: float) -> Happening | None:
        """As `wait`, but None when the time is over."""
        deadline = Deadline.after(self._clock.monotonic(), seconds)
        while True:
            try:
                event = self._queue.get(timeout=deadline.remaining(self._clock.monotonic()))
            except queue.Empty:
                return None
            if event is None:
                self._queue.put(None)
                raise StoryFailedError("the daemon's events ended; it is not running any more")
            self._show(event)
            if wanted(event):
                return event

    def _read(self) -> None:
        assert self._command.stdout is not None
        with self._command.stdout as lines:
            for line in lines:
                if line.startswith("{"):
                    self._queue.put(json.loads(line))
        self._queue.put(None)


def turns(to_state: str) -> Callable[[Happening], bool]:
    """Accepts a transition to this state."""
    return lambda event: event.get("kind") == "transition" and event.get("to_state") == to_state


def of_kind(kind: str) -> Callable[[Happening], bool]:
    """Accepts an event of this kind."""
    return lambda event: event.get("kind") == kind
