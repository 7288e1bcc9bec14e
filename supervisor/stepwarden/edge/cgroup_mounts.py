"""Where the hierarchies of control groups are mounted, and where a group of one can be seen."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UNIFIED = ""
"""The hierarchy of version 2; those of version 1 go by the name of a controller ("cpu")."""


@dataclass(frozen=True, slots=True)
class Mount:
    """One mount of a hierarchy: `root` in there is what lies at `place`."""

    root: str
    place: Path


def mounts(controller: str = UNIFIED) -> list[Mount]:
    """Each mount of the hierarchy with this controller. See proc_pid_mountinfo(5)."""
    return list(_mounts(controller))


def lines(path: str) -> list[str]:
    """The lines of a file of the kernel; none where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []


def group_of(pid: int | str, controller: str = UNIFIED) -> str | None:
    """The name of the group that a process ("self") is in; None where nobody can tell."""
    for line in lines(f"/proc/{pid}/cgroup"):
        number, _, rest = line.partition(":")
        controllers, _, name = rest.partition(":")
        wanted = number == "0" if controller == UNIFIED else controller in controllers.split(",")
        if wanted and name.startswith("/"):
            return name
    return None


def folder_of(name: str, controller: str = UNIFIED) -> Path | None:
    """Where the group `name` ("/a/b") can be seen; None where its part is not mounted."""
    if ".." in name.split("/"):  # it lies outside of our namespace
        return None
    for mount in _mounts(controller):
        rest = os.path.relpath(name, mount.root)
        if not rest.startswith("..") and (mount.place / rest).is_dir():
            return mount.place / rest
    return None


def with_parents(folder: Path, controller: str = UNIFIED) -> list[Path]:
    """A group's folder and those of the groups around it, as far as they can be seen."""
    tops = {mount.place for mount in _mounts(controller)}
    found = [folder]
    while folder not in tops and folder != folder.parent:
        folder = folder.parent
        found.append(folder)
    return found


def _mounts(controller: str) -> Iterator[Mount]:
    for line in lines("/proc/self/mountinfo"):
        place, _, kind = line.partition(" - ")
        fields, kinds = place.split(" "), kind.split(" ")
        if len(fields) < 5 or len(kinds) < 3:
            continue
        if controller == UNIFIED:
            found = kinds[0] == "cgroup2"
        else:
            found = kinds[0] == "cgroup" and controller in kinds[2].split(",")
        if found:
            yield Mount(fields[3], Path(fields[4]))
