"""Hears at once when a process ends that is not our child (a rank, an engine core), by pidfd."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from stepwarden.core.evidence import ProcessId
from stepwarden.edge.process_probe import alive


class ExitWatch:
    """Calls `on_end(process)` on the loop, once, when a watched process has ended."""

    def __init__(self, on_end: Callable[[ProcessId], None]) -> None:
        self._on_end = on_end
        self._descriptors: dict[ProcessId, int] = {}

    def add(self, process: ProcessId) -> bool:
        """Watch a process; False where it has ended already (then nothing is called).

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
        asyncio.get_running_loop().add_reader(descriptor, self._ended, process)
        return True

    def drop(self, process: ProcessId) -> None:
        """Stop watching."""
        descriptor = self._descriptors.pop(process, None)
        if descriptor is not None:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)

    def close(self) -> None:
        """Stop watching everything."""
        for process in list(self._descriptors):
            self.drop(process)

    def _ended(self, process: ProcessId) -> None:
        self.drop(process)
        self._on_end(process)
