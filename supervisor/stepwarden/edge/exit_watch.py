"""Hears at once when a process ends that is not our child (a rank, an adopted main), by pidfd."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from stepwarden.clock import Clock, SystemClock
from stepwarden.core.deadline import Deadline
from stepwarden.core.evidence import Exit, ProcessId
from stepwarden.edge.pidfd_exit import reaped_exit, unreaped_exit
from stepwarden.edge.process_probe import alive

REAP_SECONDS = 1.0
"""So long somebody else may take to reap an ended process; then its exit counts as unknown."""

_FIRST_LOOK = 0.002  # seconds; each wait doubles
_UNKNOWN = Exit()

OnExit = Callable[[ProcessId, Exit], None]


class ExitWatch:
    """Calls `on_end(process)` on the loop, once, when a watched process has ended."""

    def __init__(self, on_end: Callable[[ProcessId], None], clock: Clock | None = None) -> None:
        self._on_end = on_end
        self._clock = SystemClock() if clock is None else clock
        self._descriptors: dict[ProcessId, int] = {}
        self._on_exit: dict[ProcessId, OnExit] = {}
        self._looks: dict[ProcessId, asyncio.TimerHandle] = {}

    def add(self, process: ProcessId, on_exit: OnExit | None = None) -> bool:
        """Watch a process; False where it has ended already (then nothing is called).

        With `on_exit`, that is called in place of `on_end` as soon as it is known how the process
        ended, a second after its end at the latest: then with an `Exit` of two None.
        OSError where it cannot be watched now: with no descriptor left, it lives for all we know.
        """
        if process in self._descriptors:
            return True
        try:
            descriptor = os.pidfd_open(process.pid)
        except ProcessLookupError:
            return False
        if not alive(process):
            os.close(descriptor)
            return False
        self._descriptors[process] = descriptor
        if on_exit is not None:
            self._on_exit[process] = on_exit
        asyncio.get_running_loop().add_reader(descriptor, self._ended, process)
        return True

    def drop(self, process: ProcessId) -> None:
        """Stop watching."""
        descriptor = self._descriptors.pop(process, None)
        self._on_exit.pop(process, None)
        look = self._looks.pop(process, None)
        if look is not None:
            look.cancel()
        if descriptor is not None:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)

    def close(self) -> None:
        """Stop watching everything."""
        for process in list(self._descriptors):
            self.drop(process)

    def _ended(self, process: ProcessId) -> None:
        if process not in self._on_exit:
            self.drop(process)
            self._on_end(process)
            return
        # It stays readable from now on. Only its parent can reap it, and nothing tells us when.
        asyncio.get_running_loop().remove_reader(self._descriptors[process])
        deadline = Deadline.after(self._clock.monotonic(), REAP_SECONDS)
        self._look(process, deadline, _FIRST_LOOK)

    def _look(self, process: ProcessId, deadline: Deadline, pause: float) -> None:
        how = reaped_exit(self._descriptors[process]) or unreaped_exit(process)
        if how is None and not deadline.passed(self._clock.monotonic()):
            self._looks[process] = asyncio.get_running_loop().call_later(
                pause, self._look, process, deadline, 2 * pause
            )
            return
        tell = self._on_exit[process]
        self.drop(process)
        tell(process, how or _UNKNOWN)
