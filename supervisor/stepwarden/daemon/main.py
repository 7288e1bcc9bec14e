"""Puts the daemon together, runs it, and takes it apart again.

Order matters at both ends. Nothing is bound before the state directory's lock is ours, no worker
is started before every listener is bound, and READY is said when all answer. At the end health
says NOT_SERVING before the first worker is told to stop.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

from stepwarden import __version__
from stepwarden.clock import Clock, SystemClock
from stepwarden.config import Config
from stepwarden.core.commands import end_with_daemon
from stepwarden.core.event import Event, Kind
from stepwarden.core.heartbeat import BeatFacts
from stepwarden.core.lifecycle import RESTING
from stepwarden.core.resume import Found, resume
from stepwarden.core.worker import WorkerState
from stepwarden.daemon import gather
from stepwarden.daemon.act import Actor, Surroundings
from stepwarden.daemon.backend import Backend
from stepwarden.daemon.endings import KILL_WAIT_SECONDS
from stepwarden.daemon.logs import make_logger
from stepwarden.daemon.loop import VerdictLoop
from stepwarden.daemon.report import Reporter
from stepwarden.daemon.unit import Unit
from stepwarden.edge.admin_service import AdminServer
from stepwarden.edge.agent_service import Admission, AgentServer, Refusal
from stepwarden.edge.descriptors import raise_limit
from stepwarden.edge.health_service import HealthServer
from stepwarden.edge.instance_lock import InstanceLock
from stepwarden.edge.journal import Journal
from stepwarden.edge.launcher import Launcher
from stepwarden.edge.life_records import LifeRecords
from stepwarden.edge.listen import Target, UnixTarget, ensure_directory, group_id, parse_target
from stepwarden.edge.log_writer import LogWriter
from stepwarden.edge.page_home import (
    forget_page_home,
    make_page_home,
    note_page_home,
    remove_page_home,
)
from stepwarden.edge.snapshots import Snapshots
from stepwarden.edge.systemd import Notifier, strip
from stepwarden.errors import ExitCode


def run(config: Config) -> ExitCode:
    """Run the supervisor until SIGTERM or SIGINT; returns its exit code.

    Raises StepwardenError where it cannot start; then no worker was started.
    """
    lock = InstanceLock(config.supervisor.state_dir)
    try:
        return asyncio.run(Daemon(config, SystemClock()).run())
    finally:
        lock.release()


class Daemon:
    """All parts of one running supervisor."""

    def __init__(self, config: Config, clock: Clock) -> None:
        settings = config.supervisor
        self._config = config
        self._clock = clock
        ensure_directory(settings.runtime_dir, 0o755)
        self._page_home = make_page_home(settings.runtime_dir)
        self._page_home_note = settings.state_dir / "page-homes"
        note_page_home(self._page_home_note, self._page_home)
        self._log_writer = LogWriter(sys.stderr)
        self._log = make_logger(settings.log_format, settings.log_level, self._log_writer, clock)
        self._notifier = Notifier.from_env(os.environ)
        self._journal = Journal(settings.state_dir / "journal.sqlite")
        self._health = HealthServer(
            _targets(settings.health_listen, "supervisor.health.listen"), clock
        )
        self._reporter = Reporter(self._journal, self._health, self._notifier, clock, self._log)
        group = group_id(settings.socket_group)
        agent_socket = UnixTarget(settings.agent_socket, settings.socket_mode, group, _key("agent"))
        admin_socket = UnixTarget(settings.admin_socket, settings.socket_mode, group, _key("admin"))
        self._agents = AgentServer(
            [agent_socket, *_targets(settings.agent_listen, "supervisor.agent_listen")],
            self._admit,
            self._on_beat,
            clock,
            on_refused=self._on_refused,
        )
        limit = raise_limit()
        around = Surroundings(str(agent_socket), self._page_home, strip(os.environ), limit)
        records = LifeRecords(settings.state_dir / "lives")
        self._launcher = Launcher(clock)
        snapshots = Snapshots(clock)
        self._actor = Actor(self._launcher, records, around, snapshots, clock, self._reporter.note)
        now = clock.monotonic()
        self._units = {
            name: Unit(worker, WorkerState(name, since=now))
            for name, worker in config.workers.items()
        }
        self._loop = VerdictLoop(self._units, self._actor, self._reporter, snapshots, clock)
        self._backend = Backend(self._units, self._loop, self._reporter, self._journal, clock)
        self._admin = AdminServer(admin_socket, self._backend, clock, self._health.table)
        self._reporter.attach(self._units, self._admin.publish)
        self._actor.attach(self._loop, self._units)
        self._stop_asked = asyncio.Event()
        self._served = False

    async def run(self) -> ExitCode:
        """Serve until told to stop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            # A closed terminal ends it as Ctrl-C does; under nohup it stays ignored.
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._stop_asked.set)
        try:
            await self._start()
            turning = loop.create_task(self._loop.run())
            stopping = loop.create_task(self._stop_asked.wait())
            await asyncio.wait({turning, stopping}, return_when=asyncio.FIRST_COMPLETED)
            crashed = turning.done()
            if crashed:
                self._log.critical("the verdict loop ended", exc_info=turning.exception())
            await self._stop(turning)
            return ExitCode.INTERNAL if crashed else ExitCode.OK
        finally:
            await self._close()

    async def _start(self) -> None:
        inherited = self._actor.inherit()
        self._actor.reaper.start()
        await self._launcher.start()
        self._health.start()
        await self._agents.start()
        await self._admin.start()
        now = self._clock.monotonic()
        for name, unit in self._units.items():
            last = max(self._journal.incarnations.get(name, 0), inherited.get(name, 0))
            left = Found.REST if name in inherited else Found.NOTHING
            outcome = resume(unit.policy, now, found=left, incarnation=last)
            self._loop.apply(unit, outcome, now)
        self._backend.closed = ""
        self._reporter.turned(now)
        self._notifier.ready()
        text = (
            f"stepwarden {__version__} serves {len(self._units)} workers from {self._config.path}"
        )
        self._reporter.note(Event(Kind.DAEMON, text))
        self._served = True

    async def _stop(self, turning: asyncio.Task[None]) -> None:
        """Everybody is told to stop at once; each has its own grace."""
        self._notifier.stopping()
        self._health.drain()
        self._backend.closed = "stopping; it takes no commands any more"
        self._reporter.note(Event(Kind.DAEMON, "stopping; every worker is told to stop"))
        longest = max((u.config.stop_grace for u in self._units.values()), default=0.0)
        self._notifier.extend_timeout(longest + 2 * KILL_WAIT_SECONDS)
        now = self._clock.monotonic()
        for unit in self._units.values():
            told = end_with_daemon(unit.state, now)
            self._loop.apply(unit, told, now)
        while not self._all_rest():
            await self._reporter.next_change()
        self._loop.stop()
        await asyncio.wait({turning})

    def _all_rest(self) -> bool:
        return all(unit.state.lifecycle in RESTING for unit in self._units.values())

    async def _close(self) -> None:
        await self._admin.stop()
        await self._agents.stop()
        await self._launcher.close()
        self._health.shutdown()
        self._actor.reaper.stop()
        self._actor.close()
        if self._served:
            self._reporter.note(Event(Kind.DAEMON, "stopped"))
        self._journal.close()
        remove_page_home(self._page_home)
        if not self._page_home.exists():
            forget_page_home(self._page_home_note, self._page_home)
        self._notifier.close()
        self._log_writer.close()

    def _admit(self, token: str) -> Admission | None:
        return self._actor.admit(token)

    def _on_beat(self, worker: str, incarnation: str, facts: BeatFacts, now: float) -> None:
        found = self._actor.life_of(worker, incarnation)
        if found is None:
            return
        unit, life = found
        if gather.take_beat(life, facts, now):
            self._loop.poke(unit)

    def _on_refused(self, refusal: Refusal) -> None:
        text = f"a message was not believed ({refusal.count} times): {refusal.reason}"
        self._reporter.note(Event(Kind.REFUSED, text, refusal.worker, rank=refusal.rank))


def _targets(addresses: Sequence[str], key: str) -> list[Target]:
    return [parse_target(address, key=key) for address in addresses]


def _key(socket: str) -> str:
    return f"supervisor.{socket}_socket or runtime_dir"
