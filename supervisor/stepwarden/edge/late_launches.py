"""Starts that a killed supervisor left under way.

A launcher process that has its request goes on after the supervisor's death: it looks up a user,
enters a directory, execs a path, and each may hang on a file system for as long as that likes. Its
worker would begin long after the next supervisor had looked for workers that live, and beside the
one that this starts. So these are killed first. A pending KILL is enough: it is taken before the
process could run anything.
"""

from __future__ import annotations

import os
import signal

from stepwarden.core.evidence import ProcessId
from stepwarden.edge import signals
from stepwarden.edge.launch_spec import LAUNCHER_MARK
from stepwarden.edge.process_table import ProcessTable
from stepwarden.edge.traces import read_file

_PROGRAM = b"launch_program.py"


def end_late_launches(state_dir: os.PathLike[str] | str, table: ProcessTable) -> list[ProcessId]:
    """SIGKILL for every launcher process of an earlier supervisor of `state_dir`; whose they were.

    `table` is to be taken when our own directory's lock is held. Reads /proc of every process: in
    a thread. One that becomes its worker meanwhile is killed as such: nobody has its pid noted.
    """
    mark = launcher_mark(state_dir)
    sent = []
    for entry in table.by_pid.values():
        ours = entry.ppid == os.getpid() or entry.pid == os.getpid()
        if entry.gone or ours or not _is_launcher(entry.pid, mark):
            continue
        if signals.send(entry.process, signal.SIGKILL):
            sent.append(entry.process)
    return sent


def launcher_mark(state_dir: os.PathLike[str] | str) -> str:
    """What marks the launcher processes of the supervisor that holds this directory."""
    return os.path.realpath(state_dir)


def _is_launcher(pid: int, mark: str) -> bool:
    line = os.fsencode(f"{LAUNCHER_MARK}={mark}")
    words = read_file(f"/proc/{pid:d}/cmdline").split(b"\0")
    if not any(os.path.basename(word) == _PROGRAM for word in words):
        return False
    return line in read_file(f"/proc/{pid:d}/environ").split(b"\0")
