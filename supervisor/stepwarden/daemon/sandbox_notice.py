"""Tells at the start which workers would be spawned in a sandbox that is made for the daemon."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stepwarden.config import WorkerConfig
from stepwarden.core.event import Event, Kind
from stepwarden.daemon.host_services import ASK_SECONDS, HostServices
from stepwarden.daemon.runners import SPAWN, Runners
from stepwarden.edge.dbus_link import BusError
from stepwarden.edge.unit_sandbox import sandbox_of

MOST_NAMES = 5
"""So many workers are named; of the others, how many."""


def sandbox_sentence(unit: str, workers: list[str], settings: Iterable[str]) -> str:
    """What the operator reads."""
    named = ", ".join(workers[:MOST_NAMES])
    if len(workers) > MOST_NAMES:
        named += f" and {len(workers) - MOST_NAMES} more"
    return (
        f"spawned in the sandbox of {unit} ({', '.join(settings)}): {named}; engines may miss"
        " devices, caches or CPU affinity there. `stepwarden install --mode spawn` lays down a"
        " drop-in that loosens it; `runner: systemd` gives each a unit of its own"
    )


async def tell_of_sandbox(
    host: HostServices,
    runners: Runners,
    workers: Iterable[WorkerConfig],
    note: Callable[[Event], None],
) -> None:
    """One event where there is something to tell; silence where systemd does not say."""
    spawned = [worker.name for worker in workers if runners.kind_for(worker) == SPAWN]
    if not spawned or host.own_unit is None or not host.in_service:
        return
    try:
        settings = await sandbox_of(host.bus, host.own_unit, ASK_SECONDS)
    except BusError:
        return
    if settings:
        note(Event(Kind.DAEMON, sandbox_sentence(host.own_unit, spawned, settings)))
