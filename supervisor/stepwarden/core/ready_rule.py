"""When the whole crew counts as ready: what the health name `ready` answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stepwarden.core.lifecycle import State


@dataclass(frozen=True, slots=True)
class Standing:
    """How one worker stands. `autostart`: it starts with the daemon."""

    name: str
    state: State
    autostart: bool = True


@dataclass(frozen=True, slots=True)
class ReadyRule:
    """How many workers have to be HEALTHY, and which of them count.

    `workers` None: all that the file names. `at_least` None: each of those that count; without
    `workers` that leaves out those that only an operator starts.
    """

    at_least: int | None = None
    workers: tuple[str, ...] | None = None

    def holds(self, crew: Iterable[Standing]) -> bool:
        """True where enough of them are HEALTHY. A named worker that is not there is not."""
        healthy = {one.name: one.state is State.HEALTHY for one in crew if self._counts(one)}
        if self.at_least is not None:
            return sum(healthy.values()) >= self.at_least
        return all(healthy.values()) and healthy.keys() >= set(self.workers or ())

    def _counts(self, one: Standing) -> bool:
        if self.workers is not None:
            return one.name in self.workers
        return one.autostart or self.at_least is not None
