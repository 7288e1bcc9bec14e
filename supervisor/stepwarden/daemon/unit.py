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
    into its next life, until the operator says otherwise.
    """

    config: WorkerConfig
    state: WorkerState
    life: Life | None = None
    clocks: tuple[RunningClock, ...] = ()
    wake: Deadline = field(default_factory=Deadline.never)
    dirty: bool = True
    dismissed: frozenset[ProcessId] = frozenset()

    @property
    def policy(self) -> WorkerPolicy:
        """What judges it."""
        return self.config.policy
