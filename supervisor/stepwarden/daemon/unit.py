"""One supervised worker as the daemon holds it: configuration, state, and the present life."""

from __future__ import annotations

from dataclasses import dataclass, field

from stepwarden.config import WorkerConfig
from stepwarden.core.clocks import RunningClock
from stepwarden.core.deadline import Deadline
from stepwarden.core.evidence import ProcessId
from stepwarden.core.policy import WorkerPolicy
from stepwarden.core.worker import WorkerState
from stepwarden.daemon.life import Life


@dataclass(slots=True)
class Unit:
    """A worker of the configuration.

    `dismissed`: processes of an attached one that hung and that we could not end; they are not let
    into its next life, until the operator says otherwise. `removed`: the configuration does not
    name it any more; it is forgotten when its tree is gone. `after`: whose endings its start waits
    for, each with the number of the life that is ended.
    """

    config: WorkerConfig
    state: WorkerState
    life: Life | None = None
    clocks: tuple[RunningClock, ...] = ()
    wake: Deadline = field(default_factory=Deadline.never)
    dirty: bool = True
    dismissed: frozenset[ProcessId] = frozenset()
    removed: bool = False
    after: tuple[tuple[Unit, int], ...] = ()

    @property
    def policy(self) -> WorkerPolicy:
        """What judges it."""
        return self.config.policy

    @property
    def running_config(self) -> WorkerConfig:
        """What its present life was started with, where that is known; what its next life gets."""
        if self.life is not None and self.life.config is not None:
            return self.life.config
        return self.config
