"""Looks at a life from outside while it runs: its ready probe, its progress counter, its output."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stepwarden.config import WorkerConfig
from stepwarden.config.fields import split_address
from stepwarden.config.settings import ReadyProbe as ProbeSettings
from stepwarden.core.event import Event, Kind
from stepwarden.daemon.hooks import Hooks
from stepwarden.daemon.life import Life, Watcher
from stepwarden.daemon.runners import SYSTEMD
from stepwarden.daemon.unit import Unit
from stepwarden.edge.http_get import parse_url
from stepwarden.edge.launcher import LaunchSpec
from stepwarden.edge.output_rotation import OutputRotation
from stepwarden.edge.progress_counter import ProgressCounter, ProgressRunner, ProgressTarget
from stepwarden.edge.ready_probe import (
    CommandTarget,
    DelayTarget,
    GrpcTarget,
    HttpTarget,
    ProbeRunner,
    ReadyProbe,
    Target,
    TcpTarget,
)
from stepwarden.edge.short_command import RunShort

Launch = Callable[[WorkerConfig, tuple[str, ...]], LaunchSpec]
"""What runs a command with a worker's own environment and user."""


class Watching:
    """Begins what looks at a life, and ends it with the life."""

    def __init__(
        self,
        run_short: RunShort,
        hooks: Hooks,
    ) -> None:
        self._run_short = run_short
        self._clock = hooks.clock
        self._note = hooks.note
        self._poke = hooks.poke
        self._start_task = hooks.tasks.start

    def begin(self, unit: Unit, life: Life, config: WorkerConfig, launch: Launch) -> None:
        """Look at a life that runs now; once for each life."""
        if config.ready is not None:
            self._watch(life, self._probe(unit, life, config, config.ready, launch))
        if config.progress is not None:
            self._watch(life, self._counter(unit, life, config))
        output = config.output
        if life.runner == SYSTEMD and output.mode == "capture" and output.path is not None:
            # A spawned one has a log process that does this.
            self._watch(life, self._rotation(life, output.path, output.max_file, output.keep))

    def end(self, life: Life) -> None:
        """Look no more."""
        for watcher in life.watchers:
            self._start_task(watcher.close())
        life.watchers.clear()

    def _rotation(self, life: Life, path: Path, max_file: int, keep: int) -> OutputRotation:
        def report(text: str) -> None:
            self._note(Event(Kind.DAEMON, text, life.worker, str(life.incarnation)))

        return OutputRotation(path, max_file, keep, self._clock, report)

    def _watch(self, life: Life, watcher: Watcher) -> None:
        life.watchers.append(watcher)
        watcher.start()

    def _probe(
        self,
        unit: Unit,
        life: Life,
        config: WorkerConfig,
        settings: ProbeSettings,
        launch: Launch,
    ) -> ProbeRunner:
        target = _target(config, settings, launch)
        # A delay counts from here: its process runs since now. An adopted one has run for longer.
        started = life.spawned_at if life.adopted else self._clock.monotonic()
        probe = ReadyProbe(target, settings.timeout, self._clock, self._run_short, started)

        def passed() -> None:
            life.probe_ok = True
            self._poke(unit)

        return ProbeRunner(probe, settings.interval, self._clock, passed)

    def _counter(self, unit: Unit, life: Life, config: WorkerConfig) -> ProgressRunner:
        settings = config.progress
        assert settings is not None
        target = ProgressTarget(parse_url(settings.url), settings.counters, settings.work)

        def report(text: str) -> None:
            self._note(Event(Kind.DAEMON, text, life.worker, str(life.incarnation)))

        def seen() -> None:
            life.progress = runner.seen
            self._poke(unit)

        counter = ProgressCounter(target, self._clock)
        runner = ProgressRunner(counter, settings.interval, self._clock, report, seen)
        return runner


def probe_answer(life: Life) -> str:
    """What the ready probe of a life last heard; "" where none is asked any more."""
    if life.probe_ok:
        return ""
    texts = (w.last_text for w in life.watchers if isinstance(w, ProbeRunner))
    return next(texts, "")


def _target(config: WorkerConfig, settings: ProbeSettings, launch: Launch) -> Target:
    match settings.kind:
        case "tcp":
            host, port = split_address(settings.target)
            return TcpTarget(host.strip("[]"), int(port))
        case "http":
            return HttpTarget(parse_url(settings.target), settings.status)
        case "grpc":
            return GrpcTarget(settings.target, settings.service)
        case "command":
            return CommandTarget(launch(config, settings.argv))
        case _:
            return DelayTarget(settings.delay)
