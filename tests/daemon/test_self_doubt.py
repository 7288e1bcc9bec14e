"""What makes the daemon doubt itself: lag, a host that stalls, silence all around."""

from __future__ import annotations

import pytest
from stepwarden.config import WorkerConfig
from stepwarden.core.clocks import Cause, RunningClock
from stepwarden.core.deadline import Deadline
from stepwarden.core.facts import NO_PRESSURE, Pressure, Stall
from stepwarden.core.lifecycle import State
from stepwarden.core.policy import WorkerPolicy
from stepwarden.core.worker import WorkerState
from stepwarden.daemon.self_doubt import SelfDoubt
from stepwarden.daemon.unit import Unit

TIMEOUT = 30.0


def unit(name: str, silent_for: float, now: float, agent: str = "required") -> Unit:
    policy = WorkerPolicy(name, agent=agent)
    made = Unit(WorkerConfig(name, policy), WorkerState(name, State.HEALTHY))
    began = now - silent_for
    deadline = Deadline(began + TIMEOUT)
    made.clocks = (RunningClock("0", Cause.HEARTBEAT, began, TIMEOUT, deadline, 60.0, now, ""),)
    return made


def test_the_worst_lag_since_the_last_look_counts_once() -> None:
    doubt = SelfDoubt(lambda: NO_PRESSURE)
    doubt.woke(10.0, 10.3)
    doubt.woke(11.0, 11.1)
    doubt.woke(12.0, 11.5)  # poked before its time
    assert doubt.doubts([], 12.0).lag == pytest.approx(0.3)
    assert doubt.doubts([], 13.0).lag == 0.0


@pytest.mark.parametrize(
    ("memory", "io", "pressed"),
    [(0.05, 0.4, False), (0.125, 0.0, True), (0.0, 0.5, True), (None, None, False)],
)
def test_a_host_that_stalls(memory: float | None, io: float | None, pressed: bool) -> None:
    read = Pressure(memory=Stall(5.0, 5.0), io=Stall(7.0, 7.0))
    later = Pressure(
        memory=None if memory is None else Stall(9.0, 5.0 + memory),
        io=None if io is None else Stall(9.0, 7.0 + io),
    )
    readings = [read, later]
    doubt = SelfDoubt(lambda: readings.pop(0))
    assert not doubt.doubts([], 10.0).pressed  # nothing to compare with yet
    assert doubt.doubts([], 11.0).pressed is pressed


@pytest.mark.parametrize(
    ("silent", "quiet", "silence"), [(2, 1, True), (3, 0, True), (2, 2, False), (2, 0, False)]
)
def test_most_of_at_least_three_are_silent(silent: int, quiet: int, silence: bool) -> None:
    units = [unit(f"s{index}", 15.0, 100.0) for index in range(silent)]
    units += [unit(f"q{index}", 14.0, 100.0) for index in range(quiet)]
    units.append(unit("none", 99.0, 100.0, agent="none"))
    assert SelfDoubt(lambda: NO_PRESSURE).doubts(units, 100.0).silence is silence
