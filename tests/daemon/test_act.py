"""Acting: what is decided is done, or tried again, whatever goes wrong meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from stepwarden.clock import SystemClock
from stepwarden.config import load
from stepwarden.core.commands import command
from stepwarden.core.event import Event
from stepwarden.core.lifecycle import State
from stepwarden.core.resume import resume
from stepwarden.core.worker import Outcome
from stepwarden.daemon import act, endings
from stepwarden.daemon.act import Actor, Surroundings
from stepwarden.daemon.unit import Unit
from stepwarden.edge.burial import bury
from stepwarden.edge.launcher import Launcher
from stepwarden.edge.life_records import LifeRecords
from stepwarden.edge.snapshots import Snapshots
from support.process_world import BASE_ENV, until

CLOCK = SystemClock()
FILE = """
supervisor: {runtime_dir: /tmp, state_dir: /tmp}
workers:
  w:
    agent: none
    command: [sleep, "600"]
"""


class Loop:
    """Takes outcomes over, as the verdict loop does."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    def poke(self, unit: Unit | None = None) -> None:
        """Nobody sleeps here."""

    def apply(self, unit: Unit, outcome: Outcome, now: float) -> None:
        unit.state = outcome.state
        for action in outcome.actions:
            self._actor.take(unit, action, now)


def test_a_burial_that_fails_by_our_own_fault_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the worker would be DEAD or STOPPING for ever, and the daemon could not end."""
    (tmp_path / "f.yaml").write_text(FILE)
    config = load(tmp_path / "f.yaml").workers["w"]
    failures = 1

    async def failing(*given: object, **named: object) -> object:
        nonlocal failures
        if failures:
            failures -= 1
            raise RuntimeError("a fault")
        return await bury(*given, **named)  # type: ignore[arg-type]  # handed on as they came

    monkeypatch.setattr(endings, "bury", failing)
    monkeypatch.setattr(act, "RETRY_FIRST_SECONDS", 0.01)

    async def story() -> None:
        told: list[Event] = []
        launcher = Launcher(CLOCK)
        around = Surroundings("unix:/nowhere", tmp_path, BASE_ENV)
        records = LifeRecords(tmp_path / "lives")
        actor = Actor(launcher, records, around, Snapshots(CLOCK), CLOCK, told.append)
        first = resume(config.policy, CLOCK.monotonic())
        unit = Unit(config, first.state)
        loop = Loop(actor)
        actor.attach(loop, {"w": unit})
        actor.reaper.start()
        await launcher.start()
        loop.apply(unit, first, CLOCK.monotonic())
        await until(lambda: unit.life is not None and unit.life.main is not None)
        now = CLOCK.monotonic()
        loop.apply(unit, command(unit.state, "stop", now), now)
        await until(lambda: unit.life is None)
        await until(lambda: not unit.state.leftovers)
        assert unit.state.lifecycle is State.STOPPED
        assert "ending its tree failed: RuntimeError: a fault" in [e.sentence for e in told]
        assert list((tmp_path / "lives").iterdir()) == []
        await launcher.close()
        actor.reaper.stop()
        actor.close()

    asyncio.run(story())
