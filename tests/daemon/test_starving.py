"""What is read of a worker's pressure, when, and what becomes of it."""

from __future__ import annotations

import os
from pathlib import Path

from stepwarden.config import WorkerConfig
from stepwarden.core.clocks import Cause, RunningClock
from stepwarden.core.deadline import Deadline
from stepwarden.core.evidence import ProcessId
from stepwarden.core.facts import Pressure, Stall
from stepwarden.core.policy import WorkerPolicy
from stepwarden.core.worker import WorkerState
from stepwarden.daemon.life import Life
from stepwarden.daemon.starving import STALE_SECONDS, Starving
from stepwarden.daemon.unit import Unit
from stepwarden.edge.page_reader import PageReader


class Host:
    """The pressure of a host, and how often it was read."""

    def __init__(self) -> None:
        self.stalled = 0.0
        self.reads = 0

    def read(self) -> Pressure:
        self.reads += 1
        return Pressure(memory=Stall(self.stalled, self.stalled))


def unit_with(tmp_path: Path, began: float = 0.0) -> tuple[Unit, Life]:
    unit = Unit(WorkerConfig("w", WorkerPolicy("w")), WorkerState("w"))
    life = Life("w", 1, "w.1.x", tmp_path, PageReader(tmp_path))
    clock = RunningClock("0", Cause.STEP, began, 9.0, Deadline(began + 9.0), 60.0, 60.0, "")
    unit.life, unit.clocks = life, (clock,)
    return unit, life


def test_a_young_clock_is_not_looked_at(tmp_path: Path) -> None:
    host = Host()
    unit, life = unit_with(tmp_path, began=10.0)
    assert not Starving(host.read).look(unit, life, 11.0)
    assert host.reads == 0


def test_what_the_host_loses_between_two_looks_counts(tmp_path: Path) -> None:
    host = Host()
    unit, life = unit_with(tmp_path)
    starving = Starving(host.read)
    assert not starving.look(unit, life, 2.0)  # the first look has nothing to compare with
    host.stalled = 0.4
    assert starving.look(unit, life, 3.0)
    assert life.starving.starved.lost(2.0, 3.0) == 0.4


def test_nothing_is_read_twice_at_one_instant_nor_more_often_than_each_second(
    tmp_path: Path,
) -> None:
    host = Host()
    unit, life = unit_with(tmp_path)
    other, its = unit_with(tmp_path)
    starving = Starving(host.read)
    starving.look(unit, life, 2.0)
    starving.look(other, its, 2.0)
    assert host.reads == 1
    assert not starving.look(unit, life, 2.3)
    starving.look(unit, life, 2.3, late=True)  # it is judged now
    assert host.reads == 2
    starving.look(unit, life, 2.3, late=True)
    assert host.reads == 2


def test_of_a_time_without_looks_nothing_is_said(tmp_path: Path) -> None:
    host = Host()
    unit, life = unit_with(tmp_path)
    starving = Starving(host.read)
    starving.look(unit, life, 2.0)
    host.stalled = 3.0
    assert not starving.look(unit, life, 2.0 + STALE_SECONDS + 1.0)
    assert life.starving.starved.marks == ()


def test_the_groups_of_the_main_process_are_found_and_followed(tmp_path: Path) -> None:
    unit, life = unit_with(tmp_path)
    life.main = ProcessId(os.getpid(), 1)
    starving = Starving(Host().read)
    starving.look(unit, life, 2.0)
    places = life.starving.places
    assert places is not None
    starving.look(unit, life, 3.0)
    assert life.starving.places is places  # not looked for again
    life.starving.groups = ("0::/elsewhere",)
    starving.look(unit, life, 4.0)
    assert life.starving.groups != ("0::/elsewhere",)
