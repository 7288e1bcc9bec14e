"""What the host's service manager is to this daemon: a runner, and the one that ends it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from stepwarden.clock import Clock
from stepwarden.config import Config
from stepwarden.daemon.runners import SPAWN, SYSTEMD, UNIT, Runners
from stepwarden.edge.cgroup import Cgroup
from stepwarden.edge.dbus_link import BusError, BusRefused, BusUnavailable
from stepwarden.edge.host import this_host
from stepwarden.edge.periodic import Periodic
from stepwarden.edge.state_records import LifeRecord
from stepwarden.edge.systemd_bus import SystemdBus
from stepwarden.edge.transient_units import TransientUnits
from stepwarden.edge.unit_facts import unit_of_process
from stepwarden.edge.unit_groups import living_units
from stepwarden.edge.unit_workers import UnitWorkers
from stepwarden.errors import RefusedError

ASK_SECONDS = 2.0
"""The service manager is asked no longer than this before something that cannot wait."""

OPEN_SECONDS = 8.0
"""As long at our start: that must not take longer than the service manager waits for READY."""

ASK_AGAIN_SECONDS = 10.0
"""One that did not answer at our start is asked again this often."""

OnAnswer = Callable[[list[LifeRecord]], Awaitable[None]]
"""Hears which lives systemd holds, when it answers at last."""


async def _nobody(_: list[LifeRecord]) -> None:
    """Who hears nothing."""


class HostServices:
    """systemd where it runs this host; where it does not, every answer says so."""

    def __init__(self, config: Config, page_home: Path, clock: Clock) -> None:
        self._config = config
        self._page_home = page_home
        self._clock = clock
        self.bus = SystemdBus(clock=clock)
        self.own_unit: str | None = None
        settings = config.supervisor
        owner = str(settings.state_dir)
        self.transient = TransientUnits(self.bus, settings.runtime_dir, owner, clock=clock)
        self.units = UnitWorkers(self.bus, clock)
        self._asking: Periodic | None = None
        self._answered = False
        self._unsure: dict[str, list[Cgroup]] = {}
        self._open_again: Callable[[str], None] = lambda _: None
        self.on_answer: OnAnswer = _nobody
        self._refusal: str | None = None

    @property
    def in_service(self) -> bool:
        """Whether this daemon runs in a unit of systemd's."""
        return self.own_unit is not None and self.own_unit.endswith(".service")

    async def open(self, runners: Runners, tell: Callable[[str], None]) -> None:
        """Find out what there is; `tell` hears why it is not what `auto` would rather have.

        RefusedError where the configuration wants what there never is.
        """
        self._open_again = lambda silence: self._wait_for_answer(runners, tell, silence)
        if self.bus.booted():
            try:
                self.own_unit = await self.bus.own_unit(ASK_SECONDS)
            except BusError:
                self.own_unit = unit_of_process()
        if self.in_service:
            self.transient.after = self.own_unit
        try:
            refusal = await self.bus.refusal(OPEN_SECONDS)
        except BusUnavailable as silence:
            self._wait_for_answer(runners, tell, str(silence))
            return
        if refusal is not None:
            self._refusal = refusal
            if objection := self.objection(self._config):
                raise RefusedError(objection)
            if not self.bus.booted():
                runners.refusals[UNIT] = refusal
        self._decide(runners, tell, refusal)

    def _decide(self, runners: Runners, tell: Callable[[str], None], refusal: str | None) -> None:
        wanted = self._config.supervisor.runner
        runners.refusals.pop(SYSTEMD, None)
        runners.note = ""
        if refusal is None:
            runners.preferred = SPAWN if wanted == SPAWN else SYSTEMD
            return
        runners.refusals[SYSTEMD] = refusal
        runners.preferred = SYSTEMD if wanted == SYSTEMD else SPAWN
        if wanted == "auto" and self.bus.booted():
            means = "runner auto means spawn here, workers are children of the daemon"
            runners.note = f"{means}: {refusal}"
            tell(runners.note)

    def _wait_for_answer(self, runners: Runners, tell: Callable[[str], None], silence: str) -> None:
        """Go on without it, and ask again until it answers."""
        self._decide(runners, tell, silence)

        async def ask() -> bool:
            try:
                refusal = await self.bus.refusal()
                found = await self._in_units()
            except BusUnavailable:
                return True
            except BusRefused:
                found = []
            tell("systemd answers now")
            self._decide(runners, tell, refusal)
            await self.on_answer(found)
            self._answered = True
            return False

        self._asking = Periodic(ask, ASK_AGAIN_SECONDS, self._clock)

    def ask_on(self) -> None:
        """One that did not answer at our start is asked until it does; `on_answer` hears then."""
        if self._asking is not None:
            self._asking.start()

    def objection(self, config: Config) -> str:
        """Why this host cannot run what a configuration names; "" where it can."""
        needs = [f"workers.{w.name}" for w in config.workers.values() if w.runner == SYSTEMD]
        if config.supervisor.runner == SYSTEMD:
            needs.insert(0, "supervisor")
        if self._refusal is None or not needs:
            return ""
        return f"{needs[0]}.runner is systemd, and it cannot be used: {self._refusal}"

    def hold_back(self, known: Collection[str]) -> None:
        """While systemd is silent, starts wait for units that live and of which nobody knows more.

        `known`: the lives on record. Reads control groups: may block.
        """
        if self._asking is None:
            return
        for incarnation, (worker, group) in living_units().items():
            if incarnation not in known:
                self._unsure.setdefault(worker, []).append(group)

    def unsure_of(self, worker: str) -> str:
        """Why this worker must not be started now; "" where nothing is in the way."""
        groups = self._unsure.get(worker, [])
        if self._answered or not any(group.populated for group in groups):
            return ""
        return "waits for systemd to answer: a unit of this worker's name runs"

    async def leftovers(self) -> list[LifeRecord]:
        """Lives that systemd holds in units of ours; none where it does not answer now."""
        if self._asking is not None:
            return []
        try:
            return await self._in_units()
        except BusUnavailable as silence:
            if self.bus.booted():
                self._open_again(str(silence))
        except BusError:
            pass
        return []

    async def _in_units(self) -> list[LifeRecord]:
        found = await self.transient.leftovers()
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
        if self._asking is not None:
            await self._asking.close()
        await asyncio.shield(self.transient.close())
        self.bus.close()
