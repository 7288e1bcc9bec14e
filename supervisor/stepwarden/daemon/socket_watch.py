"""Notices that a socket of ours, or the directory around it, was taken away, and makes it anew.

A clean-up of /run or an operator's `rm -r` would otherwise leave a daemon that nobody can reach,
and workers whose agents seem to be silent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline
from stepwarden.core.event import Event, Kind
from stepwarden.core.lifecycle import LIVE, State
from stepwarden.daemon.runners import ATTACH, Runners
from stepwarden.daemon.unit import Unit
from stepwarden.edge.aside import Aside
from stepwarden.edge.bound_servers import BoundServers
from stepwarden.edge.launcher import SpawnFailed
from stepwarden.edge.listen import Target, ensure_directory
from stepwarden.edge.page_home import PAGE_HOME_MODE
from stepwarden.edge.periodic import Periodic
from stepwarden.edge.state_store import StateStore
from stepwarden.errors import StepwardenError

T = TypeVar("T")

LOOK_EVERY_SECONDS = 1.0
LOOK_SECONDS = 5.0
"""A file system that has not answered for so long is said."""

Lost = list[tuple[BoundServers, Target]]


class SocketWatch:
    """Looks each second while the daemon serves. `trouble`: what could not be made anew; "".

    `runtime_dir` and `page_home` are made again where they are missing. `renewed`: told, when
    anything was, to put back what else lay there.
    """

    def __init__(
        self,
        servers: Sequence[BoundServers],
        runtime_dir: Path,
        page_home: Path,
        renewed: Callable[[], Awaitable[None]],
        clock: Clock,
        note: Callable[[Event], None],
    ) -> None:
        self._servers = servers
        self._runtime_dir = runtime_dir
        self._page_home = page_home
        self._renewed = renewed
        self._clock = clock
        self._note = note
        self._files = Aside(clock)
        self._periodic = Periodic(self._look, LOOK_EVERY_SECONDS, clock)
        self.trouble = ""

    def start(self) -> None:
        """Begin to look, on the running loop."""
        self._periodic.start()

    async def close(self) -> None:
        """Look no more."""
        await self._periodic.close()

    async def _look(self) -> bool:
        try:
            lost, homeless = await self._aside(self._missing)
            if lost or homeless:
                await self._renew(lost)
            self._say("")
        except TimeoutError:
            self._say(f"the directory of our sockets {self._runtime_dir} does not answer")
        except (OSError, StepwardenError) as error:
            self._say(f"a socket or directory of ours was taken away: {error}")
        return True

    def _missing(self) -> tuple[Lost, bool]:
        lost = [(server, target) for server in self._servers for target in server.lost()]
        return lost, not self._page_home.is_dir()

    async def _renew(self, lost: Lost) -> None:
        """Raises for the first that could not be made anew, when all have been tried."""
        await self._aside(self._make_directories)
        failures: list[StepwardenError] = []
        for server, target in lost:
            try:
                await server.bind_again(target)
            except StepwardenError as error:
                failures.append(error)
            else:
                self._tell(f"{target} was taken away and has been bound again")
        if not lost:
            self._tell(f"{self._page_home} was taken away and has been made anew")
        await self._renewed()
        if failures:
            raise failures[0]

    def _make_directories(self) -> None:
        ensure_directory(self._runtime_dir, 0o755)
        ensure_directory(self._page_home, PAGE_HOME_MODE)

    async def _aside(self, work: Callable[[], T]) -> T:
        deadline = Deadline.after(self._clock.monotonic(), LOOK_SECONDS)
        return await self._files.call(work, deadline)

    def _say(self, trouble: str) -> None:
        if trouble and trouble != self.trouble:
            self._tell(f"{trouble}; tried again each second")
        self.trouble = trouble

    def _tell(self, text: str) -> None:
        self._note(Event(Kind.DAEMON, text))


async def put_back(units: Iterable[Unit], runners: Runners, store: StateStore) -> None:
    """Write again what lay in a runtime directory that was taken away."""
    store.copy_again()
    for unit in units:
        life, lifecycle = unit.life, unit.state.lifecycle
        if life is None or life.runner != ATTACH or not life.launching:
            continue
        if lifecycle in LIVE or lifecycle is State.FAILED:  # else it is withdrawn, or will be
            with suppress(SpawnFailed):
                await runners.by_kind(ATTACH).resume(life, unit.config)
