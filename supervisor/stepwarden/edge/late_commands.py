"""Short commands that a killed supervisor left under way.

A pre_start, stop, ready or release command goes on after the supervisor's death, and no limit ends
it any more; the next supervisor would run the same command beside it, and nobody would ever end the
first. So these are killed, with their trees. What a command that has ended left running is left
alone, as ever: such a process has inherited the marks, but it is not the one that they name.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal

from stepwarden_proto.page import ENV_INCARNATION

from stepwarden.clock import Clock
from stepwarden.core.evidence import ProcessId
from stepwarden.edge.burial import bury
from stepwarden.edge.family import Family
from stepwarden.edge.launch_spec import COMMAND_MARK, COMMAND_PID
from stepwarden.edge.process_table import ProcessTable
from stepwarden.edge.short_command import KILL_SECONDS
from stepwarden.edge.strays import marks_of

_COMMAND = re.compile(r"command-[0-9a-f]{16}")


async def end_late_commands(mark: str, table: ProcessTable, clock: Clock) -> list[ProcessId]:
    """KILL every command under way of an earlier supervisor with this `mark`; whose they were.

    Returns when their trees are gone, or cannot be ended within some seconds. `table` is to be
    taken when the state directory's lock is held.
    """
    found = await asyncio.to_thread(_under_way, mark, table)
    families = [Family(process, marker) for process, marker in found.items()]
    await asyncio.gather(*(_end(family, clock) for family in families))
    return list(found)


def _under_way(mark: str, table: ProcessTable) -> dict[ProcessId, str]:
    found = {}
    for entry in table.by_pid.values():
        if entry.gone or entry.pid == os.getpid():
            continue
        marks = marks_of(entry.process)
        marker = marks.get(ENV_INCARNATION, "")
        ours = (marks.get(COMMAND_MARK), marks.get(COMMAND_PID)) == (mark, str(entry.pid))
        # A worker's own marker would make its whole tree a part of the command.
        if ours and _COMMAND.fullmatch(marker):
            found[entry.process] = marker
    return found


async def _end(family: Family, clock: Clock) -> None:
    await bury(family, 0.0, KILL_SECONDS, clock, _ignore, stop_signal=signal.SIGKILL)


def _ignore(_: str) -> None:
    """Which commands were ended is told by the caller, once."""
