"""What the checks look at."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stepwarden.config import Config, WorkerConfig
from stepwarden.config.settings import SupervisorSettings
from stepwarden.doctor.process import environment_of, uid_of


@dataclass(frozen=True, slots=True)
class Daemon:
    """The daemon that runs, as far as it can be seen.

    `pid` None: nobody listens at its socket, or in another pid namespace. `answer`: its list of
    workers; None: it gave none, and `silence` says why. `refused`: it is there, and not for us.
    `killed`: its socket is there, which a daemon that ends in order takes away.
    """

    pid: int | None = None
    answer: Any = None
    silence: str = ""
    refused: bool = False
    killed: bool = False

    @property
    def runs(self) -> bool:
        """Whether somebody listens at its socket."""
        return self.pid is not None or self.answer is not None or self.refused

    @property
    def process(self) -> str:
        """Its name below /proc; our own where it does not run: it would be much like us."""
        return "self" if self.pid is None else str(self.pid)

    @property
    def who(self) -> str:
        """How a finding calls the process that was looked at."""
        return "this shell" if self.pid is None else f"the daemon (pid {self.pid})"

    @property
    def uid(self) -> int:
        """Its user; ours where nobody can tell."""
        found = uid_of(self.process)
        return os.geteuid() if found is None else found


@dataclass(frozen=True, slots=True)
class Subject:
    """A configuration on this host. `config` None: there is no file, so only the host is seen.

    `workers`: those that are asked for. `environment`: what a worker inherits.
    """

    settings: SupervisorSettings
    workers: tuple[WorkerConfig, ...] = ()
    config: Config | None = None
    daemon: Daemon = Daemon()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def started(self) -> tuple[WorkerConfig, ...]:
        """Those that we start by a command; of others nobody here knows how they run."""
        return tuple(worker for worker in self.workers if worker.argv)

    def environment_of(self, worker: WorkerConfig) -> dict[str, str]:
        """What a worker's next life would be given."""
        return worker.environment(self.environment)


def inherited(daemon: Daemon) -> Mapping[str, str]:
    """What workers inherit: the daemon's environment where it may be read, else our own."""
    found = None if daemon.pid is None else environment_of(str(daemon.pid))
    return dict(os.environ) if found is None else found
