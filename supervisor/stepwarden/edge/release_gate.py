"""Before a start: has the life before let go of ports, files, and whatever a command looks at?"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline, earliest
from stepwarden.core.sentences import seconds as length
from stepwarden.edge.aside import Aside
from stepwarden.edge.file_locks import LockLook, look_at_lock
from stepwarden.edge.port_holders import Port, bind_fault, holders
from stepwarden.edge.short_command import RunShort, ShortSpec
from stepwarden.waiting import timeout_for

PAUSE = 0.5
"""Seconds between two looks."""

_COMMAND_SECONDS = 5.0  # the last run of the command gets so much, or no answer could be a good one
_HOLDER_SECONDS = 2.0  # for finding out who holds a port; the sentence does without where it hangs


@dataclass(frozen=True, slots=True)
class ReleaseGate:
    """What has to be free, and how long to wait for it in seconds.

    `files`: regular files that nobody may hold a lock on. `command`: exits with 0 when it is so;
    its own limit holds for one run, and the gate's for all.
    """

    ports: tuple[Port, ...] = ()
    files: tuple[str, ...] = ()
    command: ShortSpec | None = None
    limit: float = 120.0


async def wait_released(
    gate: ReleaseGate,
    run: RunShort,
    clock: Clock,
    report: Callable[[str], None] | None = None,
) -> str:
    """ "" as soon as everything is free, else one line with the reason once the limit is over.

    At least one look is made. `report` is told when there is something to wait for, once until
    the reason changes. What waiting cannot mend (a file that is no file) ends it at once.
    """
    looks = _Looks(gate, run, clock, Deadline.after(clock.monotonic(), gate.limit))
    told = ""
    while True:
        look = await looks.look()
        if not look.reason:
            return ""
        if look.final:
            return look.reason
        if looks.over:
            return f"{look.reason}; waited {length(gate.limit)} for it"
        if report is not None and look.reason != told:
            told = look.reason
            report(f"waiting for release: {told}")
        await looks.pause()


class _Looks:
    def __init__(self, gate: ReleaseGate, run: RunShort, clock: Clock, deadline: Deadline) -> None:
        self._gate = gate
        self._run = run
        self._clock = clock
        self._deadline = deadline
        self._files = Aside(clock)
        self._holders = Aside(clock)
        self._known: dict[Port, str] = {}  # who held it: asked once, as it is costly

    @property
    def over(self) -> bool:
        return self._deadline.passed(self._clock.monotonic())

    async def pause(self) -> None:
        now = self._clock.monotonic()
        turn = earliest(self._deadline, Deadline.after(now, PAUSE))
        await asyncio.sleep(timeout_for(turn, self._clock) or 0.0)

    async def look(self) -> LockLook:
        """The first thing that is not free."""
        return await self._ports() or await self._locks() or await self._command() or LockLook()

    async def _ports(self) -> LockLook | None:
        for port in self._gate.ports:
            fault = bind_fault(port)
            if fault:
                if port not in self._known:
                    self._known[port] = await self._holder(port)
                if fault == errno.EADDRINUSE:
                    return LockLook(f"port {port} is in use{self._known[port]}")
                return LockLook(f"port {port} cannot be taken: {os.strerror(fault)}")
            self._known.pop(port, None)
        return None

    async def _holder(self, port: Port) -> str:
        limit = Deadline.after(self._clock.monotonic(), _HOLDER_SECONDS)
        try:
            return await self._holders.call(lambda: holders(port), limit)
        except OSError:
            return ""

    async def _locks(self) -> LockLook | None:
        for path in self._gate.files:
            # Even at the end of the limit a file system that answers is given time to do so.
            limit = self._deadline.not_before(self._clock.monotonic() + PAUSE)
            try:
                look = await self._files.call(partial(look_at_lock, path), limit)
            except OSError as error:
                return LockLook(f"file {path} cannot be looked at: {error}")
            if look.reason:
                return look
        return None

    async def _command(self) -> LockLook | None:
        spec = self._gate.command
        if spec is None:
            return None
        left = self._deadline.remaining(self._clock.monotonic())
        timeout = spec.timeout if left is None else min(spec.timeout, max(left, _COMMAND_SECONDS))
        ended = await self._run(replace(spec, timeout=timeout))
        return None if ended.ok else LockLook(f"the release command {ended.sentence}")
