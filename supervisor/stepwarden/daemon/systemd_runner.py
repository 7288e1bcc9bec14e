"""Runs lives as transient services, and workers that are services of the operator's."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from contextlib import suppress
from pathlib import Path

from stepwarden_proto import page

from stepwarden.clock import Clock
from stepwarden.config import WorkerConfig
from stepwarden.core.deadline import Deadline
from stepwarden.core.evidence import Exit
from stepwarden.daemon.life import Life
from stepwarden.daemon.runners import SYSTEMD, UNIT, Runner, RunnerTrouble
from stepwarden.edge.aside import Aside
from stepwarden.edge.begun import Begun
from stepwarden.edge.dbus_link import BusError
from stepwarden.edge.environment_file import EnvironmentFiles
from stepwarden.edge.launcher import SpawnFailed
from stepwarden.edge.log_program import CURRENT
from stepwarden.edge.periodic import Periodic
from stepwarden.edge.transient_units import TransientSpec, TransientUnits
from stepwarden.edge.unit_names import unit_name
from stepwarden.edge.unit_workers import UnitWorkers
from stepwarden.waiting import wait

START_LIMIT_SECONDS = 30.0
"""From the order to systemd until the exec is done; much of it is a busy host's."""

REAP_SECONDS = 1.0
"""So long systemd may take to have reaped what has ended."""

UNIT_START_LIMIT_SECONDS = 300.0
"""A unit of the operator's may notify when it is ready; its own TimeoutStartSec= is tighter."""

EXIT_SECONDS = 2.0
"""A death is not told later than this for want of its exit code: the bus may hang."""

AGENT_VARIABLES = frozenset(
    {
        page.ENV_WORKER,
        page.ENV_INCARNATION,
        page.ENV_TARGET,
        page.ENV_TOKEN,
        page.ENV_PAGE_DIR,
        page.ENV_INTERVAL,
    }
)
"""What an agent has to know of its worker."""

TIDY_AGAIN_SECONDS = 10.0
"""Units that systemd did not let go of are tried again this often."""


class SystemdRunner(Runner):
    """Each life in a transient service of its own."""

    kind = SYSTEMD

    def __init__(self, units: TransientUnits, clock: Clock) -> None:
        self._units = units
        self._clock = clock
        self._untidy: set[str] = set()
        self._tidying = Periodic(self._tidy_again, TIDY_AGAIN_SECONDS, clock)

    def reserve(self, life: Life) -> None:
        """The name of its unit."""
        with suppress(ValueError):
            life.unit = unit_name(life.name)

    async def start(
        self, life: Life, config: WorkerConfig, environment: Mapping[str, str]
    ) -> Begun:
        """Start the unit."""
        run_as, output = config.run_as, config.output
        target = None if output.path is None else str(output.path)
        if output.mode == "capture" and output.path is not None:
            target = str(output.path / CURRENT)
            await self._make_room(output.path)
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

    async def _make_room(self, directory: Path) -> None:
        """systemd makes the file and not its directory, whose file system may hang."""
        deadline = Deadline.after(self._clock.monotonic(), START_LIMIT_SECONDS)
        try:
            await Aside(self._clock).call(
                lambda: directory.mkdir(mode=0o755, parents=True, exist_ok=True), deadline
            )
        except OSError as error:  # TimeoutError is one
            text = (
                f"cannot make the directory {directory} for the output: {error.strerror or error}"
            )
            raise SpawnFailed(text) from None

    async def exit_of(self, life: Life) -> Exit | None:
        """What systemd keeps of it; it may hear of an end a little later than we do."""
        asked = self._units.exit_within(life.unit, REAP_SECONDS)
        return await _in_time(asked, self._clock)

    async def tidy(self, unit: str) -> None:
        """Have systemd forget the unit; what it does not forget now is tried again later."""
        trouble = await self._forgotten(unit)
        if trouble:
            self._untidy.add(unit)
            self._tidying.start()
            raise RunnerTrouble(f"systemd does not forget unit {unit} yet: {trouble}")

    async def _forgotten(self, unit: str) -> str:
        try:
            return "" if await self._units.tidy(unit) else "it is busy"
        except BusError as error:
            return str(error)

    async def _tidy_again(self) -> bool:
        for unit in sorted(self._untidy):
            if not await self._forgotten(unit):
                self._untidy.discard(unit)
        return True

    async def close(self) -> None:
        """Try nothing any more; the next daemon finds what is left."""
        await self._tidying.close()


async def _in_time(exit_of: Awaitable[Exit | None], clock: Clock) -> Exit | None:
    with suppress(BusError, TimeoutError):
        return await wait(exit_of, Deadline.after(clock.monotonic(), EXIT_SECONDS), clock)
    return None


class UnitRunner(Runner):
    """Each life is a run of the operator's own service."""

    kind = UNIT

    def __init__(self, units: UnitWorkers, files: EnvironmentFiles, clock: Clock) -> None:
        self._units = units
        self._files = files
        self._clock = clock

    async def start(
        self, life: Life, config: WorkerConfig, environment: Mapping[str, str]
    ) -> Begun:
        """Start the unit.

        Its environment is its own; who it is lies in a file that the unit may read, for an agent.
        """
        life.unit = config.unit or ""
        self._files.remove(life.unit)
        ours = {key: value for key, value in environment.items() if key in AGENT_VARIABLES}
        with suppress(OSError):  # most units have no agent that would miss it
            self._files.write(life.unit, ours)
        try:
            return await self._units.start(life.unit, UNIT_START_LIMIT_SECONDS)
        finally:
            self._files.remove(life.unit)

    async def exit_of(self, life: Life) -> Exit | None:
        """What systemd keeps of it."""
        return await _in_time(self._units.exit_of(life.unit), self._clock)

    async def before_burial(self, life: Life, config: WorkerConfig) -> None:
        """Let systemd stop it as its file says; what is left then is ended like any other tree."""
        with suppress(BusError):
            await self._units.stop(life.unit, config.stop_grace)
