"""Joins reloading to the parts of the daemon that a configuration is spread over."""

from __future__ import annotations

from collections.abc import Sequence

from stepwarden.clock import Clock
from stepwarden.config import Config
from stepwarden.daemon.assembly import Machine, Reports
from stepwarden.daemon.file_following import FileFollowing
from stepwarden.daemon.logs import make_logger
from stepwarden.daemon.plan import Plan
from stepwarden.daemon.reloading import Reloader, ReloadHooks
from stepwarden.edge.agent_service import AgentServer


class Reloading:
    """`reloader` loads the file again; `following` has it do so when the file changes."""

    def __init__(
        self, config: Config, machine: Machine, agents: AgentServer, reports: Reports, clock: Clock
    ) -> None:
        self._machine = machine
        self._agents = agents
        self._reports = reports
        self._clock = clock
        note, notifier = reports.reporter.note, reports.notifier
        hooks = ReloadHooks(
            machine.units,
            clock,
            note,
            lambda: machine.backend.closed,
            machine.host.objection,
            self._bind,
            self._apply,
            lambda: notifier.reloading(clock.monotonic()),
            notifier.ready,
            self._has_read,
        )
        self.reloader = Reloader(config, hooks)
        self.following = FileFollowing(self.reloader.reload, clock, note)
        machine.backend.reloader = self.reloader
        machine.meter.follow_reloads(self.reloader.counts)
        reports.reporter.ask_for_trouble(lambda: self.following.trouble)

    @property
    def config(self) -> Config:
        """What is in force."""
        return self.reloader.config

    async def start(self) -> None:
        """The daemon serves: look at the file from now on."""
        await self.following.follow(self.config)

    async def close(self) -> None:
        """Nothing is loaded any more."""
        await self.following.close()
        await self.reloader.close()

    async def _bind(self, users: Sequence[int]) -> None:
        """Listen for agents of users that have no socket yet."""
        sockets = self._machine.sockets
        missing = sockets.missing(users)
        await self._agents.sockets.add(missing)
        sockets.add(missing)

    def _apply(self, new: Config, planned: Plan) -> None:
        settings, old = new.supervisor, self.config.supervisor
        form, level, file = settings.log_format, settings.log_level, settings.log_file
        reporter = self._reports.reporter
        if (form, level) != (old.log_format, old.log_level):
            reporter.use_log(make_logger(form, level, self._reports.log_writer, self._clock, file))
        reporter.judge_ready_by(settings.health_ready)
        self._machine.governing.reconfigure(settings.governor, self._clock.monotonic())
        self._machine.incidents.reconfigure(settings.incidents)
        self._machine.applier.apply(new, planned)
        self._machine.tasks.start(self.following.follow(new))
        reporter.changed()

    def _has_read(self, identity: str) -> None:
        self.following.noted(identity)
