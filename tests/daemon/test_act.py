"""Acting: what is decided is done, or tried again, whatever goes wrong meanwhile."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from stepwarden.clock import SystemClock
from stepwarden.config import load
from stepwarden.core.commands import command
from stepwarden.core.lifecycle import State
from stepwarden.core.resume import resume
from stepwarden.daemon import endings, pauses
from stepwarden.daemon.assembly import Machine, make_reports
from stepwarden.edge.burial import bury
from support.plain_loop import PlainLoop
from support.process_world import until

CLOCK = SystemClock()
FILE = """
supervisor: {runtime_dir: /tmp, state_dir: /tmp}
workers:
  w:
    agent: none
    command: [sleep, "600"]
"""


def test_a_burial_that_fails_by_our_own_fault_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the worker would be DEAD or STOPPING for ever, and the daemon could not end."""
    (tmp_path / "f.yaml").write_text(FILE.replace("/tmp", str(tmp_path)))
    config = load(tmp_path / "f.yaml")
    failures = 1

    async def failing(*given: object, **named: object) -> object:
        nonlocal failures
        if failures:
            failures -= 1
            raise RuntimeError("a fault")
        return await bury(*given, **named)  # type: ignore[arg-type]  # handed on as they came

    monkeypatch.setattr(endings, "bury", failing)
    monkeypatch.setattr(pauses, "FIRST_SECONDS", 0.01)

    async def story() -> None:
        reports = make_reports(config, CLOCK)
        machine = Machine(config, reports, CLOCK)
        actor, unit = machine.actor, machine.units["w"]
        loop = PlainLoop(actor)
        actor.attach(loop, machine.starter)
        actor.exits.reaper.start()
        await machine.launcher.start()
        loop.apply(unit, resume(unit.policy, CLOCK.monotonic()), CLOCK.monotonic())
        await until(lambda: unit.life is not None and unit.life.main is not None)
        now = CLOCK.monotonic()
        loop.apply(unit, command(unit.state, "stop", now), now)
        await until(lambda: unit.life is None)
        await until(lambda: not unit.state.leftovers)
        assert unit.state.lifecycle is State.STOPPED
        told = [event.event.sentence for event in reports.store.journal.recent(100)]
        assert "ending its tree failed: RuntimeError: a fault" in told
        assert reports.store.lives() == []
        await machine.launcher.close()
        actor.exits.reaper.stop()
        actor.exits.close()
        reports.store.close()
        reports.log_writer.close()

    asyncio.run(story())
