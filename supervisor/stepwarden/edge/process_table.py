"""One pass over /proc: every process with its parent, session, start time, state and CPU seconds.

Only /proc/PID/stat is read. psutil would read the same file and several more, and makes an object
per process: about seven times the cost of this pass, which runs each second. Only the demo
uses psutil.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stepwarden.core.evidence import ProcessId

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_STAT_BYTES = 2048  # the longest line is below 1000 bytes
# Positions behind the closing parenthesis of the command name, see proc_pid_stat(5).
_STATE, _PPID, _SESSION, _FLAGS, _UTIME, _THREADS, _START = 0, 1, 3, 6, 11, 17, 19
_KERNEL_THREAD = 0x0020_0000  # PF_KTHREAD


@dataclass(frozen=True, slots=True)
class Proc:
    """One process as /proc showed it.

    `cpu`: seconds of user and system time, those of its ended and reaped children included.
    `state`: the letter of proc_pid_stat(5). `threads`: how many of its threads still exist.
    """

    pid: int
    ppid: int
    session: int
    start_ticks: int
    state: str
    threads: int
    cpu: float

    @property
    def process(self) -> ProcessId:
        """Its identity."""
        return ProcessId(self.pid, self.start_ticks)

    @property
    def gone(self) -> bool:
        """True for what cannot run any more and holds nothing: an entry that waits to be reaped.

        A process whose first thread ended while others run shows Z as well; its thread count
        tells it apart.
        """
        return self.state in "ZXx" and self.threads <= 1

    @property
    def stopped(self) -> bool:
        """True while SIGSTOP or the like holds it."""
        return self.state == "T"


def parse_stat(line: bytes) -> Proc | None:
    """One line of /proc/PID/stat; None where it is not one, and for threads of the kernel.

    A large host has thousands of those and none is ever of interest.

    The command name may hold spaces, parentheses and newlines, so its end is the last ")".
    """
    head, closing, tail = line.rpartition(b")")
    fields = tail.split(None, _START + 1)
    if not closing or len(fields) <= _START:
        return None
    try:
        if int(fields[_FLAGS]) & _KERNEL_THREAD:
            return None
        ticks = sum(map(int, fields[_UTIME : _UTIME + 4]))
        return Proc(
            pid=int(head.partition(b" ")[0]),
            ppid=int(fields[_PPID]),
            session=int(fields[_SESSION]),
            start_ticks=int(fields[_START]),
            state=fields[_STATE].decode("ascii"),
            threads=int(fields[_THREADS]),
            cpu=ticks / _TICKS_PER_SECOND,
        )
    except ValueError:
        return None


def read_process(pid: int) -> Proc | None:
    """What /proc says of `pid` now; None where there is no such process or it may not be seen.

    None too where we have no descriptor left to look with: `look_up` tells that apart.
    """
    try:
        return look_up(pid)
    except OSError:
        return None


def look_up(pid: int) -> Proc | None:
    """Like `read_process`, but raises OSError where nothing can be said of anybody.

    Out of descriptors or memory, a process that cannot be read is not one that is gone.
    """
    try:
        descriptor = os.open(f"/proc/{pid:d}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    try:
        return parse_stat(os.read(descriptor, _STAT_BYTES))
    except (ProcessLookupError, PermissionError):  # it went between open and read
        return None
    finally:
        os.close(descriptor)


class ProcessTable:
    """A snapshot of all processes that can be seen."""

    def __init__(self, processes: Iterable[Proc]) -> None:
        self._by_pid = {entry.pid: entry for entry in processes}
        self._children: dict[int, list[Proc]] = {}
        self._sessions: dict[int, list[Proc]] = {}
        for entry in self._by_pid.values():
            self._children.setdefault(entry.ppid, []).append(entry)
            self._sessions.setdefault(entry.session, []).append(entry)

    @classmethod
    def scan(cls) -> ProcessTable:
        """Read /proc once. What vanishes meanwhile is left out.

        OSError where it cannot be read whole: a part of it would show the living as gone.
        """
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
        return cls(entry for pid in pids if (entry := look_up(pid)) is not None)

    @property
    def by_pid(self) -> Mapping[int, Proc]:
        """Every process by its pid."""
        return self._by_pid

    def children(self, pid: int) -> tuple[Proc, ...]:
        """The direct children of `pid`."""
        return tuple(self._children.get(pid, ()))

    def in_session(self, session: int) -> tuple[Proc, ...]:
        """All processes of the session with this number."""
        return tuple(self._sessions.get(session, ()))

    def find(self, process: ProcessId) -> Proc | None:
        """The entry of exactly this process; None where it is gone or its pid is another's now."""
        entry = self._by_pid.get(process.pid)
        return entry if entry is not None and entry.start_ticks == process.start_ticks else None

    def descendants(
        self, roots: Iterable[ProcessId], barred: frozenset[int] = frozenset()
    ) -> dict[ProcessId, Proc]:
        """The living `roots` and all their descendants; pids in `barred` and below are left out."""
        found: dict[ProcessId, Proc] = {}
        queue = [entry for root in roots if (entry := self.find(root)) is not None]
        while queue:
            entry = queue.pop()
            if entry.pid in barred or entry.process in found:
                continue
            found[entry.process] = entry
            queue.extend(self._children.get(entry.pid, ()))
        return found
