"""The control group of a unit: who is in it, and whether the kernel killed for memory in there."""

from __future__ import annotations

from pathlib import Path

from stepwarden.core.evidence import ProcessId
from stepwarden.edge.process_probe import identify

# Version 2 alone, then the two places of a hybrid layout where systemd keeps its tree.
_TREES = tuple(map(Path, ("/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/systemd")))
_MEMORY_V1 = Path("/sys/fs/cgroup/memory")


def folder(cgroup: str) -> Path | None:
    """Where the kernel shows this group ("/system.slice/x.service"); None where it is not there."""
    if not cgroup.startswith("/"):
        return None
    places = (tree / cgroup.lstrip("/") for tree in _TREES)
    return next((place for place in places if (place / "cgroup.procs").exists()), None)


def processes(cgroup: str) -> frozenset[ProcessId]:
    """Everybody in the group and in the groups below it; empty where the group is gone."""
    place = folder(cgroup)
    if place is None:
        return frozenset()
    found: set[ProcessId] = set()
    for listing in [place / "cgroup.procs", *place.rglob("cgroup.procs")]:
        for pid in _words(listing):
            process = identify(int(pid))
            if process is not None:
                found.add(process)
    return frozenset(found)


def belongs(pid: int, cgroup: str) -> bool:
    """True where the process is in this group or below it."""
    for line in _lines(Path(f"/proc/{pid}/cgroup")):
        controllers, path = line.split(":", 2)[1:]
        if controllers in {"", "name=systemd"} and (path + "/").startswith(cgroup + "/"):
            return bool(cgroup)
    return False


def oom_kills(cgroup: str) -> int | None:
    """How many processes of this group the kernel killed for memory; None where none is counted.

    The group of a transient unit stays until the unit is tidied, and its counter with it.
    """
    place = folder(cgroup)
    lines = _lines(place / "memory.events") if place is not None else []
    lines += _lines(_MEMORY_V1 / cgroup.lstrip("/") / "memory.oom_control")
    for line in lines:
        name, _, number = line.partition(" ")
        if name == "oom_kill":
            return int(number)
    return None


def _words(path: Path) -> list[str]:
    return [word for line in _lines(path) for word in line.split()]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:  # it was removed meanwhile
        return []
