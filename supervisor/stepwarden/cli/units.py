"""Asks systemd whether units can be workers, within a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from stepwarden.config.units import UnitsUnknown

LIMIT_SECONDS = 2.0


def ask_systemd(units: Sequence[str]) -> Mapping[str, str]:
    """Why each of them cannot be a worker, "" where it can. Raises UnitsUnknown."""
    from stepwarden.edge.systemd_bus import SystemdBus

    if not SystemdBus.booted():
        raise UnitsUnknown("systemd does not run this host")
    return asyncio.run(_ask(units))


async def _ask(units: Sequence[str]) -> dict[str, str]:
    from stepwarden.edge.dbus_link import BusError
    from stepwarden.edge.systemd_bus import SystemdBus
    from stepwarden.edge.unit_workers import refusal

    bus = SystemdBus()
    try:
        # Side by side, so that one limit holds for them all.
        found = await asyncio.gather(*(bus.facts(unit, LIMIT_SECONDS) for unit in units))
    except BusError as error:
        raise UnitsUnknown(str(error)) from None
    finally:
        bus.close()
    return {unit: refusal(unit, facts) or "" for unit, facts in zip(units, found, strict=True)}
