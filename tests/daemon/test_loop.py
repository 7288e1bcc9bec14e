"""What the loop keeps in mind of its own pauses."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from stepwarden.core.awareness import Awareness, Pause
from stepwarden.core.clocks import Cause, RunningClock
from stepwarden.core.deadline import Deadline
from stepwarden.core.event import Event
from stepwarden.core.worker import WorkerState
from stepwarden.daemon import loop
from stepwarden.daemon.unit import Unit
from stepwarden.edge.snapshots import Snapshots
from support.clocks import FakeClock


class Told:
    """Takes events."""

    def events(self, events: list[Event], now: float) -> None:
        """Nobody reads them here."""


def test_a_pause_is_kept_for_as_long_as_a_clock_that_ran_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A budget of a day, a pause in its first hour, another one hours later."""
    monkeypatch.setattr(loop, "CATCH_UP_SECONDS", 0.0)
    clock = FakeClock(200_000.0)
    began = 150_000.0
    running = RunningClock(
        "", Cause.STARTUP, began, 86_400.0, Deadline(began + 86_400.0), 1e6, began + 1e6, ""
    )
    unit = Unit(cast(Any, None), WorkerState("w"), clocks=(running,))
    made = loop.VerdictLoop(
        {"w": unit}, cast(Any, None), cast(Any, Told()), Snapshots(clock), clock
    )
    before, early = Pause(100_000.0, 100_100.0), Pause(151_000.0, 151_100.0)
    made._awareness = Awareness((before, early))
    made._expected = clock.now - 50.0
    asyncio.run(made._doubt_myself())
    assert made._awareness.pauses == (early, Pause(clock.now - 50.0, clock.now))
    assert made._awareness.lost(began, clock.now) == 150.0
