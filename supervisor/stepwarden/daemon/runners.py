"""How a life is run: the one interface that starting, ending and adopting stand on.

spawn     a child of ours, by the launcher
systemd   a transient service of its own
unit      a service that the operator wrote
attach    something else starts it; its agent tells
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from stepwarden.config import WorkerConfig
from stepwarden.core.evidence import Exit
from stepwarden.daemon.life import Life
from stepwarden.edge.begun import Begun
from stepwarden.edge.launcher import SpawnFailed

SPAWN = "spawn"
SYSTEMD = "systemd"
UNIT = "unit"
ATTACH = "attach"

SURVIVORS = frozenset({SYSTEMD, UNIT, ATTACH})
"""Whose workers a service manager leaves alone when it ends the daemon and all of its children."""


class RunnerTrouble(Exception):
    """What a runner could not let go of, in one line."""


class Runner(ABC):
    """Runs lives of one kind. What a kind has no use for does nothing."""

    kind = ""

    def reserve(self, life: Life) -> None:  # noqa: B027
        """Fill in what of the life is known before it is started, for its note."""

    def release(self, life: Life) -> None:  # noqa: B027
        """It was not started: give back what `reserve` made, where nobody is. Never raises."""

    @abstractmethod
    async def start(
        self, life: Life, config: WorkerConfig, environment: Mapping[str, str]
    ) -> Begun:
        """Start it; SpawnFailed where it does not run. Its own limit holds."""

    def pages_of(self, worker: str) -> Path | None:  # noqa: ARG002
        """The directory that all lives of a worker keep their pages in; None: each has its own."""
        return None

    def withdraw(self, worker: str) -> None:  # noqa: B027
        """Nobody is awaited for this worker any more. Never raises."""

    async def resume(self, life: Life, config: WorkerConfig) -> None:  # noqa: B027
        """This life goes on under a new daemon. Raises SpawnFailed."""

    async def exit_of(self, life: Life) -> Exit | None:  # noqa: B027
        """How its main process ended, where that can be asked; None where it cannot."""

    async def before_burial(self, life: Life, config: WorkerConfig) -> None:  # noqa: B027
        """What is to be done before its processes are ended one by one. Never raises."""

    async def tidy(self, unit: str) -> None:  # noqa: B027
        """Every process is gone: let go of what a life held besides. Raises RunnerTrouble."""

    async def close(self) -> None:  # noqa: B027
        """The daemon ends: go on with nothing. Workers are left alone."""


class Runners:
    """All runners by kind, and which of them runs a worker.

    `preferred`: the kind that `runner: auto` means here; `note`: why it is not what that would
    rather have, "" where it is. `refusals`: why a kind cannot be had.
    """

    def __init__(self, known: Mapping[str, Runner]) -> None:
        self._known = known
        self.preferred = SPAWN
        self.note = ""
        self.refusals: dict[str, str] = {}

    def kind_for(self, config: WorkerConfig) -> str:
        """The kind that runs this worker's next life."""
        if config.unit is not None:
            return UNIT
        if config.attach is not None:
            return ATTACH
        return self.preferred if config.runner == "auto" else config.runner

    def by_kind(self, kind: str) -> Runner:
        """The runner of a kind; SpawnFailed, with the reason, where this host has none."""
        if kind in self.refusals:
            raise SpawnFailed(f"runner {kind} cannot be used: {self.refusals[kind]}")
        if kind not in self._known:
            raise SpawnFailed(f"there is no runner {kind!r}")
        return self._known[kind]

    def withdraw(self, worker: str) -> None:
        """Nobody is awaited for this worker any more."""
        runner = self._known.get(ATTACH)
        if runner is not None:
            runner.withdraw(worker)

    def pages_of(self, kind: str, worker: str) -> Path | None:
        """The directory that all lives of a worker keep their pages in; None: each has its own."""
        runner = self._known.get(kind)
        return None if runner is None else runner.pages_of(worker)

    async def tidy(self, kind: str, unit: str) -> None:
        """Let go of what a life of this kind held besides its processes. Raises RunnerTrouble."""
        runner = self._known.get(kind)
        if runner is not None and unit:
            await runner.tidy(unit)

    async def exit_of(self, life: Life) -> Exit | None:
        """How the main process of a life ended; None where its runner cannot tell."""
        runner = self._known.get(life.runner)
        return None if runner is None else await runner.exit_of(life)

    async def close(self) -> None:
        """The daemon ends."""
        for runner in self._known.values():
            await runner.close()
