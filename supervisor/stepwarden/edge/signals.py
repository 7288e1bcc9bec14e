"""Sending a signal to exactly one process, or to nobody."""

from __future__ import annotations

import os
import signal

from stepwarden.core.evidence import ProcessId
from stepwarden.edge.process_table import read_process

_FIRST_ORDINARY_PID = 2  # 1 is init; 0 and negative numbers address whole groups


def send(process: ProcessId, sig: int) -> bool:
    """Send `sig` by pidfd; True when the kernel took it for exactly this process.

    False, and nothing was sent, where it is gone, where its pid belongs to another process now,
    where we lack the permission, and for what must never be signalled: pids below 2, the
    supervisor itself and its ancestors. Never raises for any of these.
    """
    if is_untouchable(process.pid):
        return False
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        # Checked after opening: from here on the descriptor means one process for ever.
        entry = read_process(process.pid)
        if entry is None or entry.start_ticks != process.start_ticks:
            return False
        signal.pidfd_send_signal(descriptor, sig)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def wake(process: ProcessId) -> bool:
    """Let exactly this process go on where somebody has stopped it; True: it was stopped."""
    entry = read_process(process.pid)
    if entry is None or entry.process != process or not entry.stopped:
        return False
    return send(process, signal.SIGCONT)


def is_untouchable(pid: int) -> bool:
    """True for pids below 2, our own and those of our ancestors."""
    return pid < _FIRST_ORDINARY_PID or pid in _own_line()


def _own_line() -> set[int]:
    line: set[int] = set()
    pid = os.getpid()
    while pid >= _FIRST_ORDINARY_PID and pid not in line:
        line.add(pid)
        entry = read_process(pid)
        pid = 0 if entry is None else entry.ppid
    return line
