"""What really runs: the marked processes of a story, read from /proc alone.

A process belongs to a life when its environment names it, or when its pid and start ticks stand
in the roll that the processes of the worker sign. Zombies are gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from support.processes import MARK_VARIABLE


@dataclass(frozen=True, order=True)
class Seen:
    """One living process. `worker` and `life` are "" for those of the daemon itself."""

    pid: int
    ticks: int
    ppid: int
    status: str
    worker: str
    life: str
    command: str

    @property
    def identity(self) -> tuple[int, int]:
        """Pid and start ticks: no other process has both."""
        return (self.pid, self.ticks)


@dataclass(frozen=True)
class Signed:
    """One line of a roll."""

    life: str
    pid: int
    ticks: int
    role: str


def stat_of(pid: int) -> tuple[int, int, str] | None:
    """Start ticks, parent and status letter; None for one that is gone."""
    try:
        raw = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    fields = raw.rpartition(b")")[2].split()
    status = fields[0].decode()
    return None if status in "ZX" else (int(fields[19]), int(fields[1]), status)


def lives_on(pid: int, ticks: int) -> bool:
    """Whether this very process lives."""
    found = stat_of(pid)
    return found is not None and found[0] == ticks


def roll(directory: Path) -> list[Signed]:
    """Every process that ever signed in here, the oldest first."""
    try:
        lines = (directory / "roll").read_text(encoding="ascii").splitlines()
    except FileNotFoundError:
        return []
    found = (line.split() for line in lines)
    return [Signed(life, int(pid), int(ticks), role) for life, pid, ticks, role in found]


def marked(mark: str, workers: Mapping[str, Path]) -> list[Seen]:
    """Every living process of the story with this mark, by pid."""
    signed = {(one.pid, one.ticks): (name, one.life) for name, one in _all_signed(workers)}
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal() and (seen := _look(int(name), mark, signed)) is not None:
            found.append(seen)
    return sorted(found)


def alive(seen: Iterable[Seen]) -> list[Seen]:
    """Those that live still."""
    return [one for one in seen if lives_on(*one.identity)]


def number(life: str) -> int:
    """The incarnation in the name of a life."""
    return int(life.split(".")[-2])


def _all_signed(workers: Mapping[str, Path]) -> Iterable[tuple[str, Signed]]:
    for name, directory in workers.items():
        for one in roll(directory):
            yield name, one


def _look(pid: int, mark: str, signed: Mapping[tuple[int, int], tuple[str, str]]) -> Seen | None:
    found = stat_of(pid)
    if found is None or pid == os.getpid():
        return None
    ticks, ppid, status = found
    try:
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    except OSError:
        return None
    pairs = dict(item.decode("utf-8", "replace").partition("=")[::2] for item in environ)
    worker, life = signed.get((pid, ticks), ("", ""))
    if pairs.get(MARK_VARIABLE) != mark and not life:
        return None
    worker = worker or pairs.get("STEPWARDEN_WORKER", "")
    life = life or pairs.get("STEPWARDEN_INCARNATION", "")
    return Seen(pid, ticks, ppid, status, worker, life, command.decode("utf-8", "replace").strip())
