"""How pressed the host and a worker's control group are. May block: call it in a thread."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from stepwarden import __version__

PRESSURES = ("cpu", "memory", "io")
_MEMORY = ("MemTotal", "MemAvailable", "SwapTotal", "SwapFree", "Dirty", "Writeback")
_OF_GROUP = (
    *(f"{name}.pressure" for name in PRESSURES),
    "cpu.stat",
    "cpu.max",
    "memory.current",
    "memory.max",
    "memory.events",
    "pids.current",
)
_PACKAGES = ("grpcio", "protobuf", "psutil", "pydantic", "structlog", "py-spy")
_BYTES = 4096


def host_facts() -> dict[str, str]:
    """Pressure, load and memory as the kernel writes them; what cannot be read is left out."""
    found = {f"pressure/{name}": _text(Path(f"/proc/pressure/{name}")) for name in PRESSURES}
    found["loadavg"] = _text(Path("/proc/loadavg"))
    lines = _text(Path("/proc/meminfo")).splitlines()
    found["meminfo"] = "\n".join(line for line in lines if line.split(":")[0] in _MEMORY)
    found["cpus"] = str(os.cpu_count() or "")
    return {name: text for name, text in found.items() if text}


def group_facts(cgroup: Path | None) -> dict[str, str]:
    """The files of a worker's control group that tell of limits and pressure."""
    if cgroup is None:
        return {}
    found = {name: _text(cgroup / name) for name in _OF_GROUP}
    return {name: text for name, text in found.items() if text}


def versions(agents: Iterable[str] = ()) -> dict[str, str]:
    """What runs here; `agents`: the versions that the agents told."""
    found = {
        "stepwarden": __version__,
        "python": sys.version.split()[0],
        "kernel": platform.release(),
        "machine": platform.machine(),
        "agent": ", ".join(sorted({version for version in agents if version})),
    }
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return ""
