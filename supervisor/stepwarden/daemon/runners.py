"""How a life is run: the one interface that starting, ending and adopting stand on.

    spawn     a child of ours, by the launcher
    systemd   a transient service of its own
    unit      a service that the operator wrote
    attach    something else starts it; its agent tells
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from stepwarden.config import WorkerConfig
from stepwarden.core.evidence import Exit
from stepwarden.daemon.life import Life
from stepwarden.edge.begun import Begun

SPAWN = "spawn"
SYSTEMD = "systemd"
UNIT = "unit"
ATTACH = "attach"

SURVIVORS = frozenset({SYSTEMD, UNIT, ATTACH})
"""Whose workers a service manager leaves alone when it ends the daemon and all of its children."""


class Runner(Protocol):
    """Runs lives of one kind."""

    kind: str

    def reserve(self, life: Life, config: WorkerConfig) -> None:
        """Fill in what of the life is known before it is started, for its note."""

    async def start(
        self, life: Life, config: WorkerConfig, environment: Mapping[str, str]
    ) -> Begun:
        """Start it; SpawnFailed where it does not run. Its own limit holds."""

    async def exit_of(self, life: Life) -> Exit | None:
        """How its main process ended, where that can be asked; None where it cannot."""

    async def before_burial(self, life: Life, config: WorkerConfig) -> None:
        """What is to be done before its processes are ended one by one. Never raises."""

    async def tidy(self, unit: str) -> str:
        """Every process is gone: let go of what a life held besides; "" or what is in the way."""


class Runners:
    """All runners by kind, and which of them runs a worker."""

    def __init__(self, known: Mapping[str, Runner], preferred: str) -> None:
        """`preferred`: the kind that `runner: auto` means here, spawn or systemd."""
        self._known = known
        self.preferred = preferred

    def kind_for(self, config: WorkerConfig) -> str:
        """The kind that runs this worker's next life."""
        if config.unit is not None:
            return UNIT
        if config.attach is not None:
            return ATTACH
        return self.preferred if config.runner == "auto" else config.runner

    def by_kind(self, kind: str) -> Runner | None:
        """The runner of a kind; None where this host has none of it."""
        return self._known.get(kind)

    async def tidy(self, kind: str, unit: str) -> str:
        """Let go of what a life of this kind held besides its processes; "" or what is wrong."""
        runner = self._known.get(kind)
        return await runner.tidy(unit) if runner is not None and unit else ""

    async def exit_of(self, life: Life) -> Exit | None:
        """How the main process of a life ended; None where its runner cannot tell."""
        runner = self._known.get(life.runner)
        return None if runner is None else await runner.exit_of(life)
