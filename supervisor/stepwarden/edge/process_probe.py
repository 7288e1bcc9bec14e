"""What one process is and what CPU time it has used, from /proc. Nothing here ever raises."""

from __future__ import annotations

from stepwarden.core.evidence import CpuSample, ProcessId
from stepwarden.edge.process_table import ProcessTable, look_up, read_process


def identify(pid: int) -> ProcessId | None:
    """Who has this pid now; None where nobody has it or it may not be seen."""
    entry = read_process(pid)
    return None if entry is None else entry.process


def alive(process: ProcessId) -> bool:
    """True while exactly this process can still run; an entry that waits to be reaped cannot.

    True too where nobody can look (no descriptor is left): in doubt a process lives.
    """
    try:
        entry = look_up(process.pid)
    except OSError:
        return True
    return entry is not None and entry.start_ticks == process.start_ticks and not entry.gone


def cpu_sample(
    process: ProcessId, now: float, table: ProcessTable | None = None
) -> CpuSample | None:
    """CPU seconds of `process` and its own descendants at `now`; None where it is not there.

    Each total holds the time of ended and reaped children, so that children which live shorter
    than the time between two samples are counted. When a child is reaped its total moves to its
    parent's: compare the sums of two samples, not the processes one by one. One sample alone says
    nothing about load. `table` is a fresh snapshot where the caller has one; else one is taken.
    """
    snapshot = ProcessTable.scan() if table is None else table
    root = snapshot.find(process)
    if root is None:
        return None
    tree = snapshot.descendants([process])
    return CpuSample(
        at=now,
        seconds={member: entry.cpu for member, entry in tree.items()},
        state=root.state,
    )
