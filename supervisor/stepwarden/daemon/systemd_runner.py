"""Runs lives as transient services, and workers that are services of the operator's."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from stepwarden.config import WorkerConfig
from stepwarden.core.evidence import Exit
from stepwarden.daemon.life import Life
from stepwarden.daemon.runners import SYSTEMD, UNIT, Runner, RunnerTrouble
from stepwarden.edge.begun import Begun
from stepwarden.edge.dbus_link import BusError
from stepwarden.edge.transient_units import TransientSpec, TransientUnits
from stepwarden.edge.unit_names import unit_name
from stepwarden.edge.unit_workers import UnitWorkers

START_LIMIT_SECONDS = 30.0
"""From the order to systemd until the exec is done; much of it is a busy host's."""

UNIT_START_LIMIT_SECONDS = 300.0
"""A unit of the operator's may notify when it is ready; its own TimeoutStartSec= is tighter."""


class SystemdRunner(Runner):
    """Each life in a transient service of its own."""

    kind = SYSTEMD

    def __init__(self, units: TransientUnits) -> None:
        self._units = units

    def reserve(self, life: Life) -> None:
        """The name of its unit."""
        with suppress(ValueError):
            life.unit = unit_name(life.name)

    async def start(
        self, life: Life, config: WorkerConfig, environment: Mapping[str, str]
    ) -> Begun:
        """Start the unit."""
        run_as, output = config.run_as, config.output
        target = None
        if output.path is not None:
            captured = output.mode == "capture"
            target = str(output.path / "current.log" if captured else output.path)
        spec = TransientSpec(
            life.worker,
            life.name,
            config.argv,
            environment,
            config.cwd or "/",
            run_as.user,
            run_as.group,
            run_as.umask,
            run_as.nice,
            run_as.limits,
            target,
            config.stop_signal,
            config.stop_grace,
        )
        return await self._units.start(spec, START_LIMIT_SECONDS)

    async def exit_of(self, life: Life) -> Exit | None:
        """What systemd keeps of it."""
        try:
            return await self._units.exit_of(life.unit)
        except BusError:
            return None

    async def tidy(self, unit: str) -> None:
        """Have systemd forget the unit."""
        try:
            forgotten = await self._units.tidy(unit)
        except BusError as error:
            raise RunnerTrouble(f"systemd does not forget unit {unit}: {error}") from None
        if not forgotten:
            raise RunnerTrouble(f"systemd does not forget unit {unit}: it is busy")


class UnitRunner(Runner):
    """Each life is a run of the operator's own service."""

    kind = UNIT

    def __init__(self, units: UnitWorkers) -> None:
        self._units = units

    async def start(
        self,
        life: Life,
        config: WorkerConfig,
        environment: Mapping[str, str],  # noqa: ARG002 - it has its own
    ) -> Begun:
        """Start the unit."""
        life.unit = config.unit or ""
        return await self._units.start(life.unit, UNIT_START_LIMIT_SECONDS)

    async def exit_of(self, life: Life) -> Exit | None:
        """What systemd keeps of it."""
        try:
            return await self._units.exit_of(life.unit)
        except BusError:
            return None

    async def before_burial(self, life: Life, config: WorkerConfig) -> None:
        """Let systemd stop it as its file says; what is left then is ended like any other tree."""
        with suppress(BusError):
            await self._units.stop(life.unit, config.stop_grace)
