"""How long a worker's control group, and the host, waited for CPU, memory and I/O.

Both versions of control groups are read. What a kernel does not count, or does not show to us, is
None. A few small files per reading, none of which waits for a process.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from stepwarden.core.facts import Pressure, Stall, Throttling
from stepwarden.edge.cgroup_mounts import UNIFIED, folder_of, group_of, with_parents

_HOST = Path("/proc/pressure")
_MAX_LEVELS = 16
_MICROSECONDS, _NANOSECONDS = 1e6, 1e9


@dataclass(frozen=True, slots=True)
class PressurePlaces:
    """Where the files of one worker are: its group of version 2, and each group with a quota."""

    unified: Path | None = None
    quotas: tuple[Path, ...] = field(default=())


def places_of(pid: int) -> PressurePlaces:
    """The groups that this process is in now; an empty answer where they cannot be seen."""
    unified = _folder(pid, UNIFIED)
    quotas = [] if unified is None else with_parents(unified, UNIFIED)
    if (cpu := _folder(pid, "cpu")) is not None:
        quotas += with_parents(cpu, "cpu")
    return PressurePlaces(unified, tuple(quotas[:_MAX_LEVELS]))


def group_pressure(places: PressurePlaces) -> Pressure:
    """What these groups have waited for so far. Never raises."""
    quotas = {
        str(folder): found
        for folder in places.quotas
        if (found := _throttling(folder / "cpu.stat")) is not None
    }
    if places.unified is None:
        return Pressure(quotas=quotas or None)
    return Pressure(
        _stall(places.unified / "cpu.pressure"),
        _stall(places.unified / "memory.pressure"),
        _stall(places.unified / "io.pressure"),
        quotas or None,
    )


def host_pressure(place: Path = _HOST) -> Pressure:
    """What this host has waited for since its boot. Never raises."""
    return Pressure(_stall(place / "cpu"), _stall(place / "memory"), _stall(place / "io"))


def _folder(pid: int, controller: str) -> Path | None:
    name = group_of(pid, controller)
    return None if name is None else folder_of(name, controller)


def _stall(path: Path) -> Stall | None:
    totals = {}
    with suppress(OSError, ValueError):  # without the feature, reading it fails
        for line in path.read_text().splitlines():
            kind, _, rest = line.partition(" ")
            totals[kind] = int(rest.partition("total=")[2]) / _MICROSECONDS
        return Stall(totals["some"], totals.get("full")) if "some" in totals else None
    return None


def _throttling(path: Path) -> Throttling | None:
    """Of a group whose quota is counted; the root of a hierarchy and others have none."""
    found: dict[str, int] = {}
    with suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            key, _, value = line.partition(" ")
            found[key] = int(value)
    if "throttled_usec" in found:
        seconds = found["throttled_usec"] / _MICROSECONDS
    elif "throttled_time" in found:
        seconds = found["throttled_time"] / _NANOSECONDS
    else:
        return None
    return Throttling(found.get("nr_periods", 0), found.get("nr_throttled", 0), seconds)
