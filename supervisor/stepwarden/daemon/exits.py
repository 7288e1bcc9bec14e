"""Hears of ends: of our children, of mains that others started, of ranks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping

from stepwarden.clock import Clock
from stepwarden.core.evidence import Exit, ProcessId
from stepwarden.daemon.life import Life, RankMemory
from stepwarden.daemon.runners import SYSTEMD, UNIT
from stepwarden.daemon.unit import Unit
from stepwarden.edge.exit_watch import ExitWatch
from stepwarden.edge.reaper import Reaper

UNKNOWN = Exit()

WATCH_AGAIN_SECONDS = 1.0
"""A main process that cannot be watched, for want of a descriptor, is tried again this often."""


async def _stands() -> bool:
    return False


AskExit = Callable[[Life], Awaitable[Exit | None]]
"""Asks the runner of a life how its main process ended."""


class Exits:
    """Puts each end into the life that it belongs to, and makes the loop look.

    `going_down`: whether the host is. Then `stopped` is told of a life that the service manager
    ends, in place of a death.
    """

    def __init__(
        self,
        units: Mapping[str, Unit],
        ask: AskExit,
        start_task: Callable[[Coroutine[None, None, None]], asyncio.Task[None]],
        poke: Callable[[Unit], None],
        clock: Clock,
        going_down: Callable[[], Awaitable[bool]] = _stands,
        stopped: Callable[[Unit], None] = lambda _: None,
    ) -> None:
        self._units = units
        self._ask = ask
        self._start_task = start_task
        self._poke = poke
        self._going_down = going_down
        self._stopped = stopped
        self._watch = ExitWatch(self._rank_ended, clock)
        self.reaper = Reaper(self._child_ended)

    def watch_rank(self, process: ProcessId) -> bool:
        """Hear of the end of a process; False where it has ended already. May raise OSError."""
        return self._watch.add(process)

    def watch_main(self, unit: Unit, life: Life) -> None:
        """Hear of the end of a main process that is not our child."""
        main = life.main
        if main is None:
            self._start_task(self._ended(unit, life, UNKNOWN))
            return

        def ended(_: ProcessId, how: Exit) -> None:
            self._start_task(self._ended(unit, life, how))

        # A rank may be watched already, without its exit: then that watch gives way to this one.
        self._watch.drop(main)
        try:
            lives = self._watch.add(main, ended)
        except OSError:
            self._start_task(self._watch_later(unit, life))  # no descriptor is left now
            return
        if not lives:
            self._start_task(self._ended(unit, life, UNKNOWN))

    def drop(self, life: Life) -> None:
        """This life is over."""
        for process in life.watched:
            self._watch.drop(process)
        if life.main is not None:
            self._watch.drop(life.main)

    def close(self) -> None:
        """Let go of descriptors."""
        self._watch.close()

    async def _watch_later(self, unit: Unit, life: Life) -> None:
        await asyncio.sleep(WATCH_AGAIN_SECONDS)
        if unit.life is life and life.exit is None:
            self.watch_main(unit, life)

    async def _ended(self, unit: Unit, life: Life, how: Exit) -> None:
        known, _ = await asyncio.gather(self._ask(life), self._by_host(unit, life))
        if known is None or known == UNKNOWN:
            known = how
        if life.exit is None:
            life.exit = known
        for memory in life.ranks.values():
            if memory.process is not None and memory.process == life.main:
                memory.lost = True
        self._poke(unit)

    async def _by_host(self, unit: Unit, life: Life) -> None:
        """A host that shuts down stops its units before us: that is no death."""
        if life.runner in (SYSTEMD, UNIT) and await self._going_down() and unit.life is life:
            self._stopped(unit)

    def _child_ended(self, pid: int, how: Exit) -> None:
        for unit in self._units.values():
            life = unit.life
            if life is None or life.main is None or life.exit is not None:
                continue
            if life.main.pid == pid and not life.adopted:
                life.exit = how
                self._poke(unit)
                return

    def _rank_ended(self, process: ProcessId) -> None:
        for unit in self._units.values():
            life = unit.life
            if life is None:
                continue
            for memory in life.ranks.values():
                if memory.process == process:
                    self._start_task(self._lost(unit, life, memory))
                    return

    async def _lost(self, unit: Unit, life: Life, memory: RankMemory) -> None:
        process = memory.process
        await self._by_host(unit, life)
        if memory.process == process:
            memory.lost = True
            self._poke(unit)
