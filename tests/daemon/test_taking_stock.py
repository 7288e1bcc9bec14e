"""Which lives of an earlier daemon go on when the configuration has changed meanwhile."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from stepwarden.config import load
from stepwarden.core.evidence import ProcessId
from stepwarden.core.lifecycle import State
from stepwarden.core.memory import Kept
from stepwarden.core.resume import Found
from stepwarden.core.worker import WorkerState
from stepwarden.daemon.adoption import Stock, take_stock, with_launched
from stepwarden.daemon.unit import Unit
from stepwarden.edge.process_probe import identify
from stepwarden.edge.state_records import LifeRecord

SHAPES = {
    "command": "command: [sleep, '600']",
    "unit": "unit: engine.service",
    "other unit": "unit: other.service",
    "attach": "attach: {expect_user: root}",
}


def stock_of(tmp_path: Path, shape: str, *records: LifeRecord, kept: Kept | None = None) -> Stock:
    file = tmp_path / "f.yaml"
    agent = "required" if shape == "attach" else "none"
    file.write_text(f"workers: {{w: {{agent: {agent}, {SHAPES[shape]}}}}}")
    config = load(file).workers["w"]
    return take_stock(records, {"w": Unit(config, WorkerState("w"))}, {"w": kept})


def record(runner: str, number: int = 3, pid: int = 4711, unit: str = "") -> LifeRecord:
    return LifeRecord("w", f"w.{number}.abcd", "boot", runner, "/p", "t", 1.0, pid, 1, unit=unit)


@pytest.mark.parametrize(
    ("was", "unit", "shape", "found"),
    [
        ("spawn", "", "command", Found.LIFE),
        ("systemd", "stepwarden-w.service", "command", Found.LIFE),
        ("spawn", "", "unit", Found.REST),
        ("spawn", "", "attach", Found.REST),
        ("unit", "engine.service", "unit", Found.LIFE),
        ("unit", "engine.service", "other unit", Found.REST),
        ("unit", "engine.service", "command", Found.REST),
        ("attach", "", "attach", Found.LIFE),
        ("attach", "", "command", Found.NOTHING),
        ("attach", "", "unit", Found.NOTHING),
    ],
)
def test_a_life_goes_on_in_the_shape_that_it_was_started_in(
    tmp_path: Path, was: str, unit: str, shape: str, found: Found
) -> None:
    stock = stock_of(tmp_path, shape, record(was, unit=unit))
    assert stock.found("w") is found
    let_go = [life.runner for life in stock.nobodys]
    assert let_go == (["attach"] if found is Found.NOTHING else [])


def test_the_youngest_goes_on_and_older_ones_are_ended(tmp_path: Path) -> None:
    stock = stock_of(tmp_path, "command", record("spawn", 10), record("spawn", 9))
    assert stock.lives["w"].incarnation == "w.10.abcd"
    assert [life.incarnation for life in stock.rest["w"]] == ["w.9.abcd"]
    assert stock.highest("w") == 10


def test_one_that_never_had_a_process_is_ended(tmp_path: Path) -> None:
    assert stock_of(tmp_path, "command", record("spawn", pid=0)).found("w") is Found.REST
    assert stock_of(tmp_path, "attach", record("attach", pid=0)).found("w") is Found.LIFE


@pytest.mark.parametrize(("number", "found"), [(3, Found.REST), (4, Found.LIFE)])
def test_a_life_of_a_worker_that_had_settled_was_being_ended(
    tmp_path: Path, number: int, found: Found
) -> None:
    """A younger one than the note knows of was begun after it."""
    kept = Kept(State.FAILED, incarnation=3)
    assert stock_of(tmp_path, "command", record("spawn", number), kept=kept).found("w") is found


def test_one_that_waits_for_its_platform_takes_in_what_came_meanwhile(tmp_path: Path) -> None:
    kept = Kept(State.FAILED, incarnation=3, cause="platform")
    assert stock_of(tmp_path, "attach", record("attach"), kept=kept).found("w") is Found.LIFE


def test_a_launcher_that_lives_on_has_become_the_main_process() -> None:
    us = identify(os.getpid())
    assert us is not None
    gone = ProcessId(us.pid, us.start_ticks + 1)
    unborn = replace(record("spawn", pid=0), launcher_pid=us.pid, launcher_ticks=us.start_ticks)
    dead = replace(unborn, launcher_ticks=gone.start_ticks)
    known = replace(unborn, pid=4711)
    told = with_launched([unborn, dead, known, record("spawn", pid=0)], [])
    assert [(life.pid, life.start_ticks) for life in told] == [
        (us.pid, us.start_ticks),
        (0, 1),
        (4711, 1),
        (0, 1),
    ]
    assert with_launched([unborn], [us]) == [unborn], "it was told to end before it became one"
