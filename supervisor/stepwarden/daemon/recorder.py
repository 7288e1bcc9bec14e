"""Records each call into the core for each worker, so that it can be judged again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stepwarden.clock import Clock
from stepwarden.core.event import Event, Kind
from stepwarden.core.lifecycle import State
from stepwarden.core.worker import Outcome
from stepwarden.daemon.unit import Unit
from stepwarden.edge.recording import Came, Recording
from stepwarden.replay.files import SUBDIRECTORY


class Recorder:
    """Follows the outcomes of all workers. `max_bytes` 0: records nothing."""

    def __init__(
        self, state_dir: Path, max_bytes: int, clock: Clock, note: Callable[[Event], None]
    ) -> None:
        self._note = note
        self._said = ""
        directory = state_dir / SUBDIRECTORY
        self._recording = Recording(directory, max_bytes, clock) if max_bytes else None

    def follow(self, unit: Unit, outcome: Outcome, _now: float) -> None:
        """A worker was judged, commanded, or its tree has ended."""
        if self._recording is None:
            return
        state = outcome.state
        forget = unit.removed and state.lifecycle is State.STOPPED and not state.leftovers
        self._recording.put(Came(state, outcome.call, tuple(outcome.events), forget))
        self._tell_trouble(self._recording.trouble)

    def close(self) -> None:
        """Write what is left."""
        if self._recording is not None:
            self._recording.close()

    def _tell_trouble(self, trouble: str) -> None:
        if trouble == self._said:
            return
        self._said = trouble
        text = f"nothing is recorded for a replay: {trouble}" if trouble else "recording goes on"
        self._note(Event(Kind.DAEMON, text))
