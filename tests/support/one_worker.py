"""One worker with all that acts on it in this process, and without the loop that judges."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from stepwarden.clock import SystemClock
from stepwarden.config import Config, load
from stepwarden.config.settings import RunAs
from stepwarden.core.commands import command
from stepwarden.core.lifecycle import State
from stepwarden.core.resume import resume
from stepwarden.daemon.assembly import Machine, Reports, make_reports

from support.plain_loop import PlainLoop
from support.process_world import until

CLOCK = SystemClock()
FILE = """
supervisor: {{runtime_dir: {0}, state_dir: {0}}}
workers:
  w:
    agent: none
    command: [sleep, "600"]
"""


class Stage:
    """The worker, the parts that act on it, and what they told."""

    def __init__(self, config: Config) -> None:
        self.reports: Reports = make_reports(config, CLOCK)
        self.machine = Machine(config, self.reports, CLOCK)
        self.unit = self.machine.units["w"]
        self.loop = PlainLoop(self.machine.actor)
        self.machine.actor.attach(self.loop, self.machine.starter)

    def run_as(self, user: str) -> None:
        """Only then is the user database asked."""
        self.unit.config = replace(self.unit.config, run_as=RunAs(user=user))

    def begin(self) -> None:
        """As a daemon's start does."""
        now = CLOCK.monotonic()
        self.loop.apply(self.unit, resume(self.unit.policy, now), now)

    async def end(self) -> None:
        """The operator stops it; returns when that has come about."""
        now = CLOCK.monotonic()
        self.loop.apply(self.unit, command(self.unit.state, "stop", now), now)
        await until(lambda: self.unit.state.lifecycle is State.STOPPED)
        assert self.unit.life is None

    def running(self) -> bool:
        """Whether it has a main process."""
        return self.unit.life is not None and self.unit.life.main is not None

    def failure(self) -> str:
        """Why its start failed; "" where it has not."""
        return (self.unit.life and self.unit.life.spawn_error) or ""

    def told(self) -> list[str]:
        """The sentences of all events."""
        return [event.event.sentence for event in self.reports.store.journal.recent(100)]


@asynccontextmanager
async def stage(home: Path, text: str = FILE) -> AsyncIterator[Stage]:
    """`text`: the file, with {0} where directories of ours may lie; its worker is w."""
    (home / "f.yaml").write_text(text.format(home))
    made = Stage(load(home / "f.yaml"))
    reaper = made.machine.actor.exits.reaper
    reaper.start()
    await made.machine.launcher.start()
    try:
        yield made
    finally:
        await made.machine.launcher.close()
        reaper.stop()
        made.machine.actor.exits.close()
        made.reports.store.close()
        made.reports.log_writer.close()
