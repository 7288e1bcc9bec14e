"""Runs the daemon: opens what it has, takes over what it finds, serves, and ends as it was told.

Order matters at both ends. Nothing is bound before the state directory's lock is ours, no worker
is started before every listener is bound, and READY is said when all answer. At the end health
says NOT_SERVING before the first worker is told to stop.
"""

from __future__ import annotations

import asyncio
import gc
import random
import signal
import threading

from stepwarden import __version__
from stepwarden.clock import Clock, SystemClock
from stepwarden.config import Config
from stepwarden.core.commands import end_with_daemon
from stepwarden.core.deadline import Deadline, clamp_timeout
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import ProcessId
from stepwarden.core.lifecycle import LIVE, RESTING
from stepwarden.core.memory import Kept
from stepwarden.core.resume import resume
from stepwarden.daemon.adoption import Stock, TrustedUsers, with_launched, with_strays
from stepwarden.daemon.assembly import Machine, make_reports
from stepwarden.daemon.certificate_watch import CertificateWatch
from stepwarden.daemon.closing import close_all
from stepwarden.daemon.endings import KILL_WAIT_SECONDS
from stepwarden.daemon.hangup import Hangup
from stepwarden.daemon.leaving import Farewell, farewell
from stepwarden.daemon.life import Life
from stepwarden.daemon.reload_parts import Reloading
from stepwarden.daemon.runners import ATTACH
from stepwarden.daemon.sandbox_notice import tell_of_sandbox
from stepwarden.daemon.taking_over import take_over, take_over_late
from stepwarden.daemon.unit import Unit
from stepwarden.edge.agent_service import Refusal
from stepwarden.edge.certificates import Certificates
from stepwarden.edge.cgroup import remove_home
from stepwarden.edge.grpc_log import quiet_loop
from stepwarden.edge.instance_lock import InstanceLock
from stepwarden.edge.late_commands import end_late_commands
from stepwarden.edge.late_launches import end_late_launches, launcher_mark
from stepwarden.edge.listen import ensure_directory
from stepwarden.edge.loop_guard import LoopGuard, end_surely, stack_of
from stepwarden.edge.page_home import forget_page_home, remove_page_home
from stepwarden.edge.process_table import ProcessTable
from stepwarden.edge.state_records import LifeRecord
from stepwarden.edge.strays import find_strays
from stepwarden.errors import ExitCode
from stepwarden.naming import counted
from stepwarden.waiting import wait

FINISH_SECONDS = 5.0
"""What is owed at the end (a note that goes with its life) gets so long."""

TELL_SECONDS = 0.5
TELL_LOOK_SECONDS = 0.005
"""How long watchers of our health are waited for, and how often they are looked at."""


def run(config: Config) -> ExitCode:
    """Run the supervisor until SIGTERM or SIGINT; returns its exit code. SIGHUP: see `hangup`.

    Raises StepwardenError where it cannot start; then no worker was started.
    """
    lock = InstanceLock(config.supervisor.state_dir)
    try:
        return asyncio.run(Daemon(config, SystemClock()).run())
    finally:
        lock.release()


class Daemon:
    """One running supervisor."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        ensure_directory(config.supervisor.runtime_dir, 0o755)
        self._reports = make_reports(config, clock)
        self._machine = Machine(config, self._reports, clock)
        self._agents = self._machine.make_agent_server(self._on_refused)
        self._sockets = self._machine.watch_sockets(self._agents, self._reports.reporter)
        self._guard = LoopGuard(
            lambda: self._reports.reporter.turned_at,
            config.supervisor.loop_limit,
            self._end_without_loop,
            clock,
        )
        self._certificates = CertificateWatch(
            self._present_certificates, clock, self._reports.reporter.note
        )
        self._reloading = Reloading(config, self._machine, self._agents, self._reports, clock)
        self._stop_asked = asyncio.Event()
        self._signal = 0
        self._served = self._reload_first = False

    async def run(self) -> ExitCode:
        """Serve until told to stop."""
        loop = asyncio.get_running_loop()
        quiet_loop(loop)
        for number in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._asked, number)
        # After a rotation; without a log file it does nothing, least of all end us.
        loop.add_signal_handler(signal.SIGUSR1, self._reports.log_writer.reopen)
        Hangup(self._reload_asked, self._asked).listen()
        try:
            await self._start()
            self._guard.start()
            turning = loop.create_task(self._machine.loop.run())
            stopping = loop.create_task(self._stop_asked.wait())
            await asyncio.wait({turning, stopping}, return_when=asyncio.FIRST_COMPLETED)
            crashed = turning.done()
            if crashed:
                # As after any other loss of the daemon: workers live on, and the next adopts them.
                self._reports.health.drain()
                self._reports.reporter.crashed(turning.exception())
            else:
                await self._stop(turning)
            return ExitCode.INTERNAL if crashed else ExitCode.OK
        finally:
            await self._close()

    def _asked(self, number: int) -> None:
        self._signal = self._signal or number
        self._stop_asked.set()

    def _end_without_loop(self, lost: float) -> None:
        """The loop stands still, perhaps for ever: end, so that another daemon can watch."""
        thread = threading.main_thread().ident or 0

        def last_words() -> None:
            self._reports.reporter.stood_still(lost, stack_of(thread))
            self._reports.log_writer.close()

        end_surely(ExitCode.LOOP_STUCK, last_words)

    def _reload_asked(self) -> None:
        async def reload() -> None:
            await self._reloading.reloader.reload("SIGHUP")

        if self._served:
            self._machine.tasks.start(reload())
        else:
            self._reload_first = True  # once it serves: the file may be another since it was read

    # The start

    async def _start(self) -> None:
        machine, reports = self._machine, self._reports
        machine.actor.exits.reaper.start()
        machine.host.on_answer = self._take_over_late
        await machine.host.open(machine.runners, self._tell)
        await machine.launcher.start()
        reports.health.start()
        machine.metrics.start()
        await self._agents.bind()
        await machine.admin.bind()
        await self._take_over()
        # Nobody is answered before it is known whom there is: no agent is turned away, and no
        # worker that lives is shown as stopped.
        await self._agents.start()
        await machine.admin.start()
        self._sockets.start()
        self._certificates.start()
        await machine.incidents.start()
        machine.backend.closed = ""
        reports.reporter.turned(self._clock.monotonic())
        reports.notifier.ready()
        text = f"stepwarden {__version__} serves {counted(len(machine.units), 'worker')}"
        reports.reporter.note(Event(Kind.DAEMON, f"{text} from {self._config.path}"))
        configs = [unit.config for unit in machine.units.values()]
        machine.tasks.start(
            tell_of_sandbox(machine.host, machine.runners, configs, reports.reporter.note)
        )
        self._served = True
        # What is there by now stays: the collector would stop the loop to look at all of it again.
        gc.freeze()
        await self._reloading.start()
        if self._reload_first:
            self._reload_asked()

    async def _take_over(self) -> None:
        machine = self._machine
        await take_over(machine, await self._records(), self._resume)
        machine.groups.recall()
        machine.host.ask_on()

    async def _take_over_late(self, found: list[LifeRecord]) -> None:
        await take_over_late(self._machine, found, self._resume)

    async def _records(self) -> list[LifeRecord]:
        machine = self._machine
        late = await self._end_late_launches()
        targets = {str(target) for target in machine.sockets.agents}
        table = machine.snapshots.table(self._clock.monotonic())
        configs = [unit.config for unit in machine.units.values()]
        users = await asyncio.to_thread(TrustedUsers, configs, self._clock)
        strays = await asyncio.to_thread(
            find_strays, targets, table, users.trusted, machine.page_home
        )
        leftovers = await machine.host.leftovers()
        noted = with_launched(machine.store.lives(), late)
        records = with_strays(with_strays(noted, leftovers), strays)
        known = {record.incarnation for record in records}
        await asyncio.to_thread(machine.host.hold_back, known)
        return records

    async def _end_late_launches(self) -> list[ProcessId]:
        """What is being started now would be found by nobody later. Returns those starts."""
        directory, table = self._config.supervisor.state_dir, ProcessTable.scan()
        late = await asyncio.to_thread(end_late_launches, directory, table)
        self._tell_ended("starts", late)
        commands = await end_late_commands(launcher_mark(directory), table, self._clock)
        self._tell_ended("short commands", commands)
        return late

    def _tell_ended(self, what: str, ended: list[ProcessId]) -> None:
        if ended:
            pids = ", ".join(str(process.pid) for process in ended)
            text = f"{what} that an earlier daemon had under way were ended: pid {pids}"
            self._reports.reporter.note(Event(Kind.DAEMON, text))

    def _resume(self, unit: Unit, stock: Stock, kept: Kept | None, same_boot: bool) -> None:
        name = unit.config.name
        told = self._machine.store.journal.incarnations.get(name, 0)
        outcome = resume(
            unit.policy,
            self._clock.monotonic(),
            kept,
            stock.found(name),
            same_boot=same_boot,
            incarnation=max(told, stock.highest(name)),
            spread=random.uniform(-1.0, 1.0),
        )
        self._machine.loop.apply(unit, outcome, self._clock.monotonic())
        self._machine.adoption.tell(unit)

    # The end

    async def _stop(self, turning: asyncio.Task[None]) -> None:
        """Everybody who is not left alone is told to stop at once; each has its own grace."""
        machine, reports = self._machine, self._reports
        machine.backend.closed = "stopping; it takes no commands any more"
        await self._drain()
        reports.notifier.stopping()
        job = await machine.host.job()
        settings = self._reloading.config.supervisor
        goodbye = farewell(settings.on_exit, self._signal, job, machine.host.in_service)
        ending = [unit for unit in machine.units.values() if not _left(unit, goodbye)]
        self._tell_farewell(goodbye, len(machine.units) - len(ending))
        reports.notifier.extend_timeout(self._longest(ending))
        now = self._clock.monotonic()
        for unit in ending:
            machine.loop.apply(unit, end_with_daemon(unit.state, now), now)
        limit = Deadline.after(now, self._longest(ending))
        while not all(unit.state.lifecycle in RESTING for unit in ending):
            try:
                await wait(reports.reporter.next_change(), limit, self._clock)
            except TimeoutError:
                break  # what hangs in the kernel is on record; the next daemon goes on with it
        await self._end_of_nobodys(limit)
        machine.loop.stop()
        await asyncio.wait({turning})

    async def _drain(self) -> None:
        """NOT_SERVING, and heard by every watcher that listens, before anybody is told to stop."""
        health, clock = self._reports.health, self._clock
        health.drain()
        limit = Deadline.after(clock.monotonic(), TELL_SECONDS)
        while not health.all_told and not limit.passed(clock.monotonic()):
            await asyncio.sleep(TELL_LOOK_SECONDS)

    async def _end_of_nobodys(self, limit: Deadline) -> None:
        """Lives that no configuration names end with us: perhaps no daemon comes after."""
        if ending := [task for task in self._machine.starter.nobodys if not task.done()]:
            left = clamp_timeout(limit.remaining(self._clock.monotonic()))
            await asyncio.wait(ending, timeout=left)

    def _longest(self, ending: list[Unit]) -> float:
        """Seconds that the slowest of them may take in all.

        A start under way is seen to its end first; that has what is left of `stop_limit`.
        """
        graces = [0.0]
        for unit in ending:
            config = unit.running_config
            command = config.stop_command
            graces.append(config.stop_grace + (command.timeout if command else 0.0))
        needed = max(graces) + 2 * KILL_WAIT_SECONDS
        starting = any(unit.life is not None and _under_way(unit.life) for unit in ending)
        return max(needed, self._reloading.config.supervisor.stop_limit) if starting else needed

    def _tell(self, text: str) -> None:
        self._reports.reporter.note(Event(Kind.DAEMON, text))

    def _tell_farewell(self, goodbye: Farewell, left: int) -> None:
        text = f"stopping ({goodbye.why}); "
        text += f"{left} workers live on and will be adopted" if left else "every worker is stopped"
        self._reports.reporter.note(Event(Kind.DAEMON, text))

    async def _close(self) -> None:
        machine, reports = self._machine, self._reports
        await close_all(
            (
                self._reloading.close,
                self._sockets.close,
                self._certificates.close,
                machine.admin.stop,
                self._agents.stop,
                lambda: machine.tasks.finish(FINISH_SECONDS),
                machine.launcher.close,
                machine.runners.close,
                machine.host.close,
                reports.health.shutdown,
                machine.metrics.shutdown,
                machine.actor.exits.reaper.stop,
                machine.actor.exits.close,
                machine.recorder.close,
                self._say_stopped,
                lambda: machine.learning.close(machine.units.values()),
                reports.store.close,
                self._take_directories_away,
                reports.notifier.close,
                reports.log_writer.close,
                self._guard.stop,  # the last: until here an end that hangs is ended by it
            ),
            reports.reporter.not_closed,
        )

    def _say_stopped(self) -> None:
        if self._served:
            self._tell("stopped")

    def _take_directories_away(self) -> None:
        machine = self._machine
        if machine.cgroup_home is not None:
            remove_home(machine.cgroup_home)
        remove_page_home(machine.page_home)
        if not machine.page_home.exists():
            forget_page_home(machine.page_note, machine.page_home)

    def _present_certificates(self) -> list[Certificates]:
        bound = [*self._reports.health.listening, *self._agents.listening]
        of_grpc = [one.certificates for one in bound if one.certificates is not None]
        return [*of_grpc, *self._machine.metrics.certificates]

    def _on_refused(self, refusal: Refusal) -> None:
        text = f"a message was not believed ({refusal.count} times): {refusal.reason}"
        event = Event(Kind.REFUSED, text, refusal.worker, rank=refusal.rank)
        self._reports.reporter.note(event)


def _under_way(life: Life) -> bool:
    """Whether its start can no more be given up and is not over."""
    return life.launching and life.spawning is not None and not life.spawning.done()


def _left(unit: Unit, goodbye: Farewell) -> bool:
    """Whether it goes on without us; one that is being started or ended is seen to its end."""
    life = unit.life
    if life is None or unit.state.lifecycle not in LIVE:
        return False
    return (life.main is not None or life.runner == ATTACH) and goodbye.leaves(life)
