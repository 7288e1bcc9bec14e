"""What the host's service manager is to this daemon: a runner, and the one that ends it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from stepwarden.clock import Clock
from stepwarden.config import SupervisorSettings
from stepwarden.daemon.runners import SPAWN, SYSTEMD, UNIT, Runners
from stepwarden.edge.dbus_link import BusError
from stepwarden.edge.host import this_host
from stepwarden.edge.state_records import LifeRecord
from stepwarden.edge.systemd_bus import SystemdBus
from stepwarden.edge.transient_units import TransientUnits
from stepwarden.edge.unit_workers import UnitWorkers
from stepwarden.errors import RefusedError

ASK_SECONDS = 2.0
"""The service manager is asked no longer than this before something that cannot wait."""


class HostServices:
    """systemd where it runs this host; where it does not, every answer says so."""

    def __init__(self, settings: SupervisorSettings, page_home: Path, clock: Clock) -> None:
        self._settings = settings
        self._page_home = page_home
        self.bus = SystemdBus(clock=clock)
        self.own_unit: str | None = None
        owner = str(settings.state_dir)
        self.transient = TransientUnits(self.bus, settings.runtime_dir, owner, clock=clock)
        self.units = UnitWorkers(self.bus, clock)

    @property
    def in_service(self) -> bool:
        """Whether this daemon runs in a unit of systemd's."""
        return self.own_unit is not None and self.own_unit.endswith(".service")

    async def open(self, runners: Runners) -> None:
        """Find out what there is; RefusedError where the configuration wants what there is not."""
        refusal = await self.bus.refusal()
        if self.bus.booted():
            try:
                self.own_unit = await self.bus.own_unit()
            except BusError:
                self.own_unit = None
        if self.in_service:
            self.transient.after = self.own_unit
        if refusal is not None:
            runners.refusals[SYSTEMD] = refusal
            if not self.bus.booted():
                runners.refusals[UNIT] = refusal
        wanted = self._settings.runner
        if wanted == SYSTEMD and refusal is not None:
            raise RefusedError(f"supervisor.runner is systemd, and it cannot be used: {refusal}")
        runners.preferred = SYSTEMD if refusal is None and wanted != SPAWN else SPAWN

    async def leftovers(self) -> list[LifeRecord]:
        """Lives that systemd holds in units of ours."""
        try:
            found = await self.transient.leftovers()
        except BusError:
            return []
        return [
            LifeRecord(
                left.worker,
                left.incarnation,
                this_host().boot,
                SYSTEMD,
                str(self._page_home / left.incarnation),
                "",
                0.0,
                left.begun.main.pid if left.begun.main else 0,
                left.begun.main.start_ticks if left.begun.main else 0,
                left.begun.cgroup,
                left.begun.unit,
            )
            for left in found
        ]

    async def job(self) -> str | None:
        """What systemd does with our own unit now ("stop", "restart"); None for nothing."""
        if self.own_unit is None:
            return None
        try:
            return await self.bus.job_type(self.own_unit, ASK_SECONDS)
        except BusError:
            return None

    async def going_down(self) -> bool:
        """Whether the host is shutting down."""
        if not self.bus.booted():
            return False
        try:
            return await self.bus.system_stopping(ASK_SECONDS)
        except BusError:
            return False

    async def close(self) -> None:
        """Give the connection back."""
        await asyncio.shield(self.transient.close())
        self.bus.close()
