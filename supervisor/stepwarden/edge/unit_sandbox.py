"""What the sandbox of a unit takes from workers that are spawned in it.

Read from systemd itself, so that it holds with every drop-in, and for units that are not ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stepwarden.edge.systemd_bus import SystemdBus

_NAMESPACES = 0x7E020000  # every CLONE_NEW* but the one of time, which systemd cannot restrict

_YES = (True, "yes")


def _named(text: str) -> Callable[[Any], str]:
    return lambda value: text if value in _YES else ""


def _devices(value: Any) -> str:
    return f"DevicePolicy={value}" if value in ("closed", "strict") else ""


def _home(value: Any) -> str:
    return f"ProtectHome={value}" if value in ("yes", "read-only", "tmpfs") else ""


def _system(value: Any) -> str:
    return "ProtectSystem=strict" if value == "strict" else ""


def _namespaces(value: Any) -> str:
    return "" if int(value) & _NAMESPACES == _NAMESPACES else "RestrictNamespaces=yes"


_TAKES: Mapping[str, Callable[[Any], str]] = {
    "DevicePolicy": _devices,
    "PrivateDevices": _named("PrivateDevices=yes"),
    "ProtectHome": _home,
    "ProtectSystem": _system,
    "PrivateTmp": _named("PrivateTmp=yes"),
    "MemoryDenyWriteExecute": _named("MemoryDenyWriteExecute=yes"),
    "RestrictNamespaces": _namespaces,
    "PrivateNetwork": _named("PrivateNetwork=yes"),
}


def takes_from_workers(properties: Mapping[str, Any]) -> tuple[str, ...]:
    """The settings that engines may miss something by, as a unit file has them; () for none.

    `properties`: of a service, as D-Bus gives them; those that are not there take nothing.
    """
    found = (look(properties[name]) for name, look in _TAKES.items() if name in properties)
    return tuple(setting for setting in found if setting)


async def sandbox_of(bus: SystemdBus, unit: str, limit: float) -> tuple[str, ...]:
    """The same of a unit that runs. Raises BusError."""
    return takes_from_workers(await bus.properties(unit, limit))
