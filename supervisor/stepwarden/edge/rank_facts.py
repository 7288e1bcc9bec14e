"""One reading of what the kernel says of a rank: processes, threads, I/O, and the pressure around.

It belongs into a thread of its own (`edge/aside.py`): files of a process in a bad state may not
answer. Those that are known to wait for it (cmdline, maps, environ) are not read. What is there is
bounded: so many processes and threads for all ranks of one reading together.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

from stepwarden.clock import Clock
from stepwarden.core.evidence import ProcessId
from stepwarden.core.facts import Pressure, ProcessFacts, RankFacts, ThreadFacts
from stepwarden.edge.pressure import group_pressure, host_pressure, places_of
from stepwarden.edge.process_table import Proc, ProcessTable

MAX_PROCESSES = 64
"""So many processes are read closely, of all ranks together; the ranks' own come first."""

MAX_THREADS = 512
"""So many threads, of all ranks together; each process gets its share, its first threads first."""

_BYTES = 4096
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_NANOSECONDS = 1e9
# Positions behind the closing parenthesis of the command name, see proc_pid_stat(5).
_STATE, _MINOR, _MAJOR, _UTIME, _STIME = 0, 7, 9, 11, 12


def read_facts(
    ranks: Mapping[str, ProcessId], table: ProcessTable | None, clock: Clock
) -> dict[str, RankFacts]:
    """The facts of these ranks, by name; one that is gone or may not be seen is left out.

    `table`: a fresh snapshot where the caller has one. OSError where /proc cannot be read whole.
    """
    snapshot = ProcessTable.scan() if table is None else table
    host = host_pressure()
    groups = _Groups()
    trees = {name: _tree(process, snapshot) for name, process in ranks.items()}
    trees = {name: tree for name, tree in trees.items() if tree}
    shares = _shares(trees)
    found = {}
    for name, tree in trees.items():
        at = clock.monotonic()
        processes = tuple(_process(entry, shares[1]) for entry in tree[: shares[0]])
        found[name] = RankFacts(at, processes, groups.pressure(tree[0].pid), host)
    return found


class _Groups:
    """The pressure of each group, read once for all ranks that are in it."""

    def __init__(self) -> None:
        self._found: dict[bytes, Pressure] = {}

    def pressure(self, pid: int) -> Pressure:
        """What the group of this process has waited for so far."""
        named = _read(f"/proc/{pid:d}/cgroup")
        if named not in self._found:
            self._found[named] = group_pressure(places_of(pid))
        return self._found[named]


def _tree(process: ProcessId, table: ProcessTable) -> list[Proc]:
    """The rank's own process, then its descendants, the oldest first; empty where it is gone."""
    own = table.find(process)
    if own is None:
        return []
    others = table.descendants([process])
    others.pop(process, None)
    return [own, *sorted(others.values(), key=lambda entry: (entry.start_ticks, entry.pid))]


def _shares(trees: Mapping[str, list[Proc]]) -> tuple[int, int]:
    """How many processes of each rank, and how many threads of each process, are read."""
    each = max(1, MAX_PROCESSES // max(1, len(trees)))
    read = sum(min(each, len(tree)) for tree in trees.values())
    return each, max(2, MAX_THREADS // max(1, read))


def _process(entry: Proc, most: int) -> ProcessFacts:
    tids = _tids(entry.pid)
    threads = [
        thread
        for tid in tids[:most]
        if (thread := _thread(f"/proc/{entry.pid:d}/task/{tid:d}")) is not None
    ]
    io = _named_numbers(f"/proc/{entry.pid:d}/io")
    major = [thread.major_faults for thread in threads]
    return ProcessFacts(
        process=entry.process,
        name=threads[0].name if threads else "",
        state=entry.state,
        cpu=entry.cpu,
        major_faults=sum(n for n in major if n is not None) if threads else None,
        read_bytes=io.get("rchar"),
        written_bytes=io.get("wchar"),
        threads=tuple(threads),
        threads_in_all=max(len(tids), entry.threads),
    )


def _tids(pid: int) -> list[int]:
    with suppress(OSError):
        return sorted(int(name) for name in os.listdir(f"/proc/{pid:d}/task"))
    return []


def _thread(place: str) -> ThreadFacts | None:
    line = _read(f"{place}/stat")
    head, closing, tail = line.rpartition(b")")
    number, _, name = head.partition(b" (")
    fields = tail.split(None, _STIME + 1)
    if not closing or len(fields) <= _STIME:
        return None
    try:
        return ThreadFacts(
            tid=int(number),
            name=name.decode("utf-8", "replace"),
            state=fields[_STATE].decode("ascii"),
            cpu=(int(fields[_UTIME]) + int(fields[_STIME])) / _TICKS_PER_SECOND,
            waited=_waited(place),
            wchan=_wchan(place),
            minor_faults=int(fields[_MINOR]),
            major_faults=int(fields[_MAJOR]),
        )
    except ValueError:
        return None


def _waited(place: str) -> float | None:
    """The second number of schedstat: nanoseconds in which it could run and did not."""
    fields = _read(f"{place}/schedstat").split()
    with suppress(ValueError, IndexError):
        return int(fields[1]) / _NANOSECONDS
    return None


def _wchan(place: str) -> str | None:
    """Where in the kernel it sleeps; None for one that does not, and where that is not told."""
    name = _read(f"{place}/wchan").decode("ascii", "replace").strip()
    return None if name in ("", "0") else name


def _named_numbers(path: str) -> dict[str, int]:
    found: dict[str, int] = {}
    with suppress(ValueError):
        for line in _read(path).splitlines():
            key, _, value = line.partition(b":")
            found[key.decode("ascii", "replace")] = int(value)
    return found


def _read(path: str) -> bytes:
    """What a file of /proc says, in one read; b"" where it cannot be read."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, _BYTES)
        finally:
            os.close(descriptor)
    return b""
