"""One process snapshot for all who ask within a few milliseconds.

When hundreds of workers end together, each of their burials looks again and again; a snapshot for
each look would cost as many passes over /proc as there are workers, each as long as they are many.
"""

from __future__ import annotations

from stepwarden.clock import Clock
from stepwarden.core.deadline import elapsed
from stepwarden.edge.process_table import ProcessTable

SHARED_SECONDS = 0.01
"""A snapshot is shared for so long after it was taken."""


class Snapshots:
    """Takes snapshots of the process table and keeps the newest for a moment."""

    def __init__(self, clock: Clock, shared: float = SHARED_SECONDS) -> None:
        self._clock = clock
        self._shared = shared
        self._table: ProcessTable | None = None
        self._begun = 0.0
        self._done = 0.0

    def table(self, not_before: float) -> ProcessTable:
        """A snapshot that was begun at `not_before` or later and is a few milliseconds old at most.

        Whoever relies on a signal or an exit passes its instant (monotonic seconds). OSError where
        /proc cannot be read whole; nothing is kept then.
        """
        now = self._clock.monotonic()
        table = self._table
        young = elapsed(self._done, now) < self._shared
        if table is not None and young and self._begun >= not_before:
            return table
        self._table = None
        self._begun = now
        self._table = ProcessTable.scan()
        self._done = self._clock.monotonic()
        return self._table
