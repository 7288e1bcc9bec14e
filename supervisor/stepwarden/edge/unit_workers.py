"""Workers that are systemd units of the operator's (`unit: NAME.service`)."""

from __future__ import annotations

from contextlib import suppress

from stepwarden.clock import Clock, SystemClock
from stepwarden.core.deadline import Deadline
from stepwarden.core.evidence import Exit, ProcessId
from stepwarden.edge.begun import Begun
from stepwarden.edge.dbus_link import BusError, BusRefused
from stepwarden.edge.launcher import SpawnFailed
from stepwarden.edge.systemd_bus import DONE, LATE, OVER, SystemdBus
from stepwarden.edge.unit_facts import UnitFacts, members


def refusal(unit: str, facts: UnitFacts | None) -> str | None:
    """Why this unit cannot be a worker; None where it can. `facts` None: systemd knows none."""
    if facts is None:
        return f"there is no unit {unit}"
    if facts.load_state != "loaded":
        return f"unit {unit} cannot be used: systemd says {facts.load_state}"
    if facts.restart != "no":
        return (
            f"unit {unit} has Restart={facts.restart}: two restarters would fight; "
            "set Restart=no there"
        )
    return None


class UnitWorkers:
    """Starts and stops units that the operator wrote, within limits in seconds."""

    def __init__(self, bus: SystemdBus, clock: Clock | None = None) -> None:
        self._bus = bus
        self._clock = SystemClock() if clock is None else clock

    async def start(self, unit: str, limit: float) -> Begun:
        """Start the unit, a failed one too; returns once systemd calls it started.

        One that runs already is taken as it is. SpawnFailed: it does not run, with the reason; a
        unit that did not come up within the limit has been stopped again.
        """
        return await self._begin(unit, limit, again=False)

    async def restart(self, unit: str, limit: float) -> Begun:
        """Stop what runs of the unit and start it; otherwise as `start`."""
        return await self._begin(unit, limit, again=True)

    async def stop(self, unit: str, limit: float) -> bool:
        """Stop the unit as its file says; True once nothing of it runs. Raises BusError."""
        await self._bus.stop_unit(unit, limit)
        facts = await self._bus.facts(unit)
        return facts is None or (not facts.running and not members(facts.cgroup))

    async def facts(self, unit: str) -> UnitFacts | None:
        """What systemd says of it; None where it knows none. Raises BusError."""
        return await self._bus.facts(unit)

    async def exit_of(self, unit: str) -> Exit | None:
        """How its last main process ended; None while one runs or none ever did. Raises BusError.

        Kept for as long as systemd keeps the unit in memory.
        """
        facts = await self._bus.facts(unit)
        return None if facts is None else facts.exit

    async def processes(self, unit: str) -> frozenset[ProcessId]:
        """Everybody in its control group. Raises BusError."""
        facts = await self._bus.facts(unit)
        return frozenset() if facts is None else members(facts.cgroup)

    async def _begin(self, unit: str, limit: float, again: bool) -> Begun:
        deadline = Deadline.after(self._clock.monotonic(), limit)
        try:
            facts = await self._bus.facts(unit)
            problem = refusal(unit, facts)
            if problem is not None:
                raise SpawnFailed(problem)
            # One that failed too often within its StartLimit would be refused. Without root we may
            # start it and not do this; then its own StartLimitIntervalSec=0 has to.
            with suppress(BusRefused):
                await self._bus.reset_failed(unit)
            order = self._bus.restart_unit if again else self._bus.start_unit
            outcome = await order(unit, deadline.remaining(self._clock.monotonic()) or 0.0)
            facts = await self._bus.facts(unit)
            if outcome == LATE:
                await self._bus.stop_unit(unit, limit)
        except BusError as error:
            raise SpawnFailed(f"cannot start unit {unit}: {error}") from None
        if outcome in {DONE, OVER} and facts is not None and facts.running:
            return Begun(facts.main, facts.cgroup, unit)
        raise SpawnFailed(_why(unit, outcome, facts))


def _why(unit: str, outcome: str, facts: UnitFacts | None) -> str:
    if outcome == LATE:
        return f"unit {unit} was not up within the limit"
    if facts is None:
        return f"cannot start unit {unit}: systemd says {outcome}"
    status = f", status {facts.exec_status}" if facts.result == "exit-code" else ""
    return f"cannot start unit {unit}: systemd says {outcome}, result {facts.result}{status}"
