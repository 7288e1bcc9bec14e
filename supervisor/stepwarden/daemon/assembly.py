"""Puts the parts of the daemon together; nothing here runs yet."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from stepwarden.clock import Clock
from stepwarden.config import Config, SupervisorSettings
from stepwarden.core.commands import BY_HOST, end_with_daemon
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import Exit
from stepwarden.core.heartbeat import BeatFacts
from stepwarden.core.worker import WorkerState
from stepwarden.daemon import gather
from stepwarden.daemon.act import Actor
from stepwarden.daemon.adoption import Adoption
from stepwarden.daemon.applying import Applier, Parts
from stepwarden.daemon.attach_runner import AttachRunner
from stepwarden.daemon.backend import Backend
from stepwarden.daemon.endings import Endings
from stepwarden.daemon.exits import Exits
from stepwarden.daemon.families import Families
from stepwarden.daemon.governing import Governing
from stepwarden.daemon.grouping import Groups
from stepwarden.daemon.holding import Holds
from stepwarden.daemon.hooks import Hooks
from stepwarden.daemon.host_services import HostServices
from stepwarden.daemon.incidents import Incidents
from stepwarden.daemon.keeping import Keeper
from stepwarden.daemon.learning import Learning
from stepwarden.daemon.life import Life
from stepwarden.daemon.logs import make_logger, make_writer
from stepwarden.daemon.loop import VerdictLoop
from stepwarden.daemon.meter import Meter
from stepwarden.daemon.nobodys import Nobodys
from stepwarden.daemon.recorder import Recorder
from stepwarden.daemon.report import Reporter
from stepwarden.daemon.runners import ATTACH, SPAWN, SYSTEMD, UNIT, Runners
from stepwarden.daemon.self_doubt import SelfDoubt
from stepwarden.daemon.socket_watch import SocketWatch, put_back
from stepwarden.daemon.sockets import Sockets, targets
from stepwarden.daemon.spawn_runner import SpawnRunner
from stepwarden.daemon.starting import Starter, Surroundings
from stepwarden.daemon.starving import Starving
from stepwarden.daemon.systemd_runner import SystemdRunner, UnitRunner
from stepwarden.daemon.tasks import Tasks
from stepwarden.daemon.unit import Unit
from stepwarden.daemon.watching import Watching
from stepwarden.edge.admin_service import AdminServer
from stepwarden.edge.agent_service import AgentServer, Refusal
from stepwarden.edge.cgroup import make_home
from stepwarden.edge.descriptors import raise_limit
from stepwarden.edge.health_service import HealthServer
from stepwarden.edge.late_launches import launcher_mark
from stepwarden.edge.launcher import Launcher
from stepwarden.edge.log_writer import LogWriter
from stepwarden.edge.metrics_page import MetricsPage
from stepwarden.edge.metrics_server import MetricsServer
from stepwarden.edge.metrics_snapshot import DoubtFigures
from stepwarden.edge.page_home import make_page_home, note_page_home
from stepwarden.edge.pressure import host_pressure
from stepwarden.edge.reaper import Reaper
from stepwarden.edge.short_command import short_runner
from stepwarden.edge.snapshots import Snapshots
from stepwarden.edge.stack_capture import StackCapture
from stepwarden.edge.state_store import StateStore
from stepwarden.edge.systemd import Notifier, strip
from stepwarden.edge.views import RecordedEvent


@dataclass(slots=True)
class Reports:
    """Where everything is told: history, log, health, the service manager."""

    log_writer: LogWriter
    notifier: Notifier
    store: StateStore
    health: HealthServer
    reporter: Reporter


def make_reports(config: Config, clock: Clock) -> Reports:
    """Open the log, the state and the health server's table."""
    settings = config.supervisor
    form, file = settings.log_format, settings.log_file
    log_writer = make_writer(form, file, clock)
    log = make_logger(form, settings.log_level, log_writer, clock, file)
    notifier = Notifier.from_env(os.environ)
    store = StateStore(settings.state_dir, _copies(settings), clock)
    health = HealthServer(targets(settings.health, "supervisor.health"), clock)
    reporter = Reporter(store.journal, health, notifier, clock, log)
    reporter.judge_ready_by(settings.health_ready)
    return Reports(log_writer, notifier, store, health, reporter)


def _copies(settings: SupervisorSettings) -> Path:
    """Where second copies of the state lie.

    Another supervisor with a state of its own may have the same runtime directory, and neither
    may take the workers of the other for its own.
    """
    whose = sha256(os.fsencode(os.path.realpath(settings.state_dir))).hexdigest()[:12]
    return settings.runtime_dir / f"state-{whose}"


class Machine:
    """The parts that judge and act, joined: units, runners, actor, loop, and who speaks to them."""

    def __init__(self, config: Config, reports: Reports, clock: Clock) -> None:
        settings, note = config.supervisor, reports.reporter.note
        now = clock.monotonic()
        self._clock = clock
        self.sockets = Sockets(config, clock)
        self.runtime_dir = settings.runtime_dir
        self.page_home = make_page_home(settings.runtime_dir)
        self.page_note = settings.state_dir / "page-homes"
        note_page_home(self.page_note, self.page_home)
        policies = list(config.groups.values())
        self.units = {
            name: Unit(worker, WorkerState(name, since=now))
            for name, worker in config.workers.items()
        }
        self.store, self.tasks = reports.store, Tasks(note)
        mark = launcher_mark(settings.state_dir)
        self.launcher = Launcher(clock, mark=mark)
        self.snapshots = Snapshots(clock)
        self.host = HostServices(config, self.page_home, clock)
        self.holds = Holds(self.units, policies, self.host.unsure_of)
        self.groups = Groups(self.units, policies)
        self.keeper = Keeper(self.store)
        self.recorder = Recorder(settings.state_dir, settings.recording_size, clock, note)
        self._make_hands(config, mark, Hooks(clock, note, self._poke, self.tasks))
        self.governing = Governing(
            self.units, self.groups, settings.governor, now, reports.reporter.note
        )
        self._make_metrics(config, reports)
        self._make_judges(config, reports)
        self.backend = Backend(
            self.units,
            self.loop,
            reports.reporter,
            self.store,
            clock,
            self.groups,
            lambda: self.runners.note,
            self.governing,
            self.incidents,
        )
        self.admin = AdminServer(self.sockets.admin, self.backend, clock, reports.health.table)
        reports.reporter.attach(self.units, self._publish)

    def _make_hands(self, config: Config, mark: str, hooks: Hooks) -> None:
        """What starts lives, ends them, and hears of their ends."""
        clock, note, tasks = hooks.clock, hooks.note, hooks.tasks
        families = Families(self.units, self.store)
        exits = Exits(
            self.units,
            self._exit_of,
            tasks.start,
            self._poke,
            clock,
            self.host.going_down,
            self._stopped_by_host,
        )
        self.runners = self._make_runners(config, exits.reaper, families, note)
        self.endings = Endings(
            families, self.runners, self.store, self.snapshots, clock, note, self.page_home
        )
        run_short = short_runner(self.launcher, exits.reaper, clock, mark)
        capture = StackCapture(self.launcher, exits.reaper, clock, mark)
        self.incidents = Incidents(self.units, config.supervisor, capture, hooks)
        self.endings.before = self.incidents.before_burial
        watching = Watching(run_short, hooks)
        self.actor = Actor(
            self.units,
            self.runners,
            families,
            self.endings,
            exits,
            watching,
            self.page_home,
            hooks,
        )
        around = Surroundings(
            self.page_home, strip(os.environ), self.sockets.target_for, self.host.going_down
        )
        self.starter = Starter(
            self.runners, self.store, around, self.holds, watching, run_short, hooks
        )
        self.nobodys = Nobodys(
            self.units, self.endings, self.keeper, self.store, tasks, self.starter.nobodys
        )
        self.adoption = Adoption(self.actor, self.endings, self.runners, note)

    def _make_metrics(self, config: Config, reports: Reports) -> None:
        reporter, clock = reports.reporter, self._clock
        self.meter = Meter(
            self.units, self._restarts_used, lambda: reporter.trouble, clock, reporter.note
        )
        self.meter.follow_incidents(self.incidents.counts)
        self.metrics = MetricsServer(
            targets(config.supervisor.metrics, "supervisor.metrics"),
            MetricsPage(
                lambda: self.meter.snapshot,
                lambda: self.meter.turned_at,
                clock,
                lambda: self.meter.faults,
            ),
            clock,
            lambda text: reporter.note(Event(Kind.DAEMON, text)),
        )

    def _make_judges(self, config: Config, reports: Reports) -> None:
        """The loop, and what follows what comes of it."""
        self.learning = Learning(self.store, reports.reporter.note)
        followers = [
            self.recorder.follow,
            self.learning.follow,
            self.keeper.follow,
            self.actor.follow,
            self.holds.follow,
            self.groups.follow,
            self.incidents.follow,
        ]
        self.loop = VerdictLoop(
            self.units,
            self.actor,
            reports.reporter,
            self.snapshots,
            self._clock,
            followers,
            self.meter.turned if config.supervisor.metrics.addresses else None,
            self.learning.look,
            self.governing,
            SelfDoubt(host_pressure),
            self.tasks.start,
            Starving(),
        )
        self.applier = Applier(
            Parts(
                self.units,
                self.loop,
                self.groups,
                self.holds,
                self.keeper,
                self._clock,
                reports.reporter.note,
                lambda worker: self.store.journal.incarnations.get(worker, 0),
                self.starter.watch_anew,
            )
        )
        self.meter.follow_doubt(self._doubt_figures)
        followers.append(self.applier.follow)
        self.groups.attach(self.loop.apply)
        self.actor.attach(self.loop, self.starter, self.groups)

    def watch_sockets(self, agents: AgentServer, reporter: Reporter) -> SocketWatch:
        """What makes our sockets and directories anew when somebody takes them away."""
        watch = SocketWatch(
            [agents.sockets, self.admin.sockets],
            self.runtime_dir,
            self.page_home,
            lambda: put_back(self.units.values(), self.runners, self.store),
            self._clock,
            reporter.note,
        )
        reporter.ask_for_trouble(lambda: watch.trouble)
        return watch

    def make_agent_server(self, on_refused: Callable[[Refusal], None]) -> AgentServer:
        """What takes the beats."""
        return AgentServer(
            self.sockets.agents,
            self.actor.admit,
            self._on_beat,
            self._clock,
            on_refused=on_refused,
        )

    def _make_runners(
        self, config: Config, reaper: Reaper, families: Families, note: Callable[[Event], None]
    ) -> Runners:
        settings = config.supervisor
        self.cgroup_home = make_home()
        spawn = SpawnRunner(
            self.launcher,
            reaper,
            self.cgroup_home,
            raise_limit(),
            families.note_log,
            self._clock,
            note,
            self._note_life,
        )
        attach = AttachRunner(settings.runtime_dir / "attach", self.sockets.target_for, self._clock)
        systemd = SystemdRunner(self.host.transient, self._clock)
        unit = UnitRunner(self.host.units, self.host.transient.files, self._clock)
        return Runners({SPAWN: spawn, ATTACH: attach, SYSTEMD: systemd, UNIT: unit})

    async def _note_life(self, life: Life) -> None:
        await self.starter.write_down(life)

    def _publish(self, recorded: RecordedEvent) -> None:
        self.meter.event(recorded.event)
        self.incidents.event(recorded)
        self.admin.publish(recorded)

    def _doubt_figures(self) -> DoubtFigures:
        governing = self.governing
        return DoubtFigures(
            self.loop.doubt[0],
            governing.frozen,
            governing.freezes,
            governing.tokens,
            dict(governing.held_up),
        )

    def _restarts_used(self, unit: Unit, now: float) -> int:
        used = self.groups.used(unit.config.name, now)
        return unit.state.ledger.used(unit.policy.restart, now) if used is None else used

    async def _exit_of(self, life: Life) -> Exit | None:
        return await self.runners.exit_of(life)

    def _stopped_by_host(self, unit: Unit) -> None:
        now = self._clock.monotonic()
        self.loop.apply(unit, end_with_daemon(unit.state, now, BY_HOST), now)

    def _poke(self, unit: Unit) -> None:
        self.loop.poke(unit)

    def _on_beat(self, worker: str, incarnation: str, facts: BeatFacts, now: float) -> None:
        found = self.actor.life_of(worker, incarnation)
        if found is None:
            return
        unit, life = found
        if gather.take_beat(life, facts, now):
            self.loop.poke(unit)
