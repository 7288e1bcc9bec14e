"""The turns of the loop: whose turn it is, when it wakes, what one worker's fault costs others."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest
from stepwarden.config import load
from stepwarden.core.action import Action, Spawn
from stepwarden.core.commands import command
from stepwarden.core.deadline import Deadline
from stepwarden.core.event import Event, Kind
from stepwarden.core.lifecycle import State
from stepwarden.core.worker import WorkerState
from stepwarden.daemon.life import Life
from stepwarden.daemon.loop import (
    FAMILY_SECONDS,
    MIN_REST_SECONDS,
    SLICE_SECONDS,
    YOUNG_SECONDS,
    VerdictLoop,
)
from stepwarden.daemon.unit import Unit
from stepwarden.edge.page_reader import PageReader
from stepwarden.edge.snapshots import Snapshots
from support.clocks import FakeClock

FILE = "workers:\n  a: {command: [x], backend: cpu}\n  b: {command: [x], backend: cpu}\n"


class Told:
    """The reporter's side: keeps what it is told."""

    def __init__(self) -> None:
        self.kept: list[Event] = []
        self.faults: list[str] = []
        self.changes = 0

    def events(self, events: Any, _now: float) -> None:
        self.kept += events

    def changed(self) -> None:
        self.changes += 1

    def fault(self, worker: str, error: Exception, _now: float) -> None:
        self.faults.append(f"{worker}: {error}")


class Hands:
    """The actor's side: keeps what it is to do."""

    def __init__(self) -> None:
        self.actions: list[Action] = []
        self.observed: list[str] = []

    def take(self, _unit: Unit, action: Action, _now: float) -> None:
        self.actions.append(action)

    def observe(self, life: Life, _table: Any, now: float) -> None:
        self.observed.append(life.worker)
        life.observed_at = now

    def watch(self, _process: Any) -> bool:
        return True

    def note_arrival(self, _unit: Unit, _life: Life, _now: float) -> None:
        """Nobody is awaited here."""


class Stage:
    """A loop with two workers, a clock that stands, and no world."""

    def __init__(self, tmp_path: Path) -> None:
        file = tmp_path / "f.yaml"
        file.write_text(FILE)
        self.pages = tmp_path
        self.clock = FakeClock(1000.0)
        self.units = {n: Unit(one, WorkerState(n)) for n, one in load(file).workers.items()}
        self.told, self.hands = Told(), Hands()
        told: Any = self.told
        hands: Any = self.hands
        self.loop = VerdictLoop(self.units, hands, told, Snapshots(self.clock), self.clock)

    def live(self, name: str) -> Unit:
        """Have this worker live: healthy, with a family that is looked at."""
        now = self.clock.now
        unit = self.units[name]
        unit.life = Life(name, 1, f"{name}.1.x", self.pages, PageReader(self.pages), spawned_at=now)
        family: Any = object()
        unit.life.family = family
        unit.state = WorkerState(name, State.HEALTHY, incarnation=1, spawned_at=now, ready_at=now)
        return unit

    def turn(self, seconds: float = 0.0) -> None:
        self.clock.advance(seconds)
        asyncio.run(self.loop._turn(self.clock.now))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_an_outcome_is_taken_over_done_and_told(stage: Stage) -> None:
    unit = stage.units["a"]
    stage.loop.apply(unit, command(unit.state, "start", stage.clock.now), stage.clock.now)
    assert unit.state.lifecycle is State.STARTING
    assert stage.hands.actions == [Spawn(1)]
    assert [event.kind for event in stage.told.kept] == [Kind.OPERATOR, Kind.TRANSITION]
    assert stage.told.changes == 1
    assert 0.0 < (unit.wake.remaining(stage.clock.now) or 0.0) <= 1.0


def test_between_full_turns_only_those_that_are_due_or_poked_have_one(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    turned: list[str] = []

    def note(unit: Unit, _table: Any, now: float) -> None:
        turned.append(unit.config.name)
        unit.dirty = False
        unit.wake = Deadline.after(now, 1.0)

    monkeypatch.setattr(stage.loop, "_turn_unit", note)
    stage.turn()
    assert turned == ["a", "b"]
    stage.turn(0.3)
    assert turned == ["a", "b"], "nobody is due"
    stage.loop.poke(stage.units["b"])
    stage.turn(0.1)
    stage.units["a"].wake = Deadline.after(stage.clock.now, 0.2)
    stage.turn(0.3)
    assert turned == ["a", "b", "b", "a"]
    stage.turn(0.4)
    assert turned[4:] == ["a", "b"], "each second all of them"


def test_a_fault_in_one_workers_turn_ends_nobody_elses(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = stage.loop._turn_unit
    turned: list[str] = []

    def fail(unit: Unit, table: Any, now: float) -> Any:
        if unit.config.name == "a":
            raise ValueError("odd")
        turned.append(unit.config.name)
        return plain(unit, table, now)

    monkeypatch.setattr(stage.loop, "_turn_unit", fail)
    stage.turn()
    stage.turn(1.0)
    assert stage.told.faults == ["a: odd"] * 2
    assert turned == ["b"] * 2
    # It is tried again, but the loop does not spin on it.
    assert stage.units["a"].wake.remaining(stage.clock.now) == 1.0


def test_it_sleeps_to_the_next_deadline_at_most_a_second_and_never_spins(stage: Stage) -> None:
    stage.turn()
    now = stage.clock.now
    assert stage.loop._next_wake(now).remaining(now) == pytest.approx(1.0)
    stage.units["a"].wake = Deadline(now + 0.25)
    assert stage.loop._next_wake(now).remaining(now) == pytest.approx(0.25)
    stage.units["b"].wake = Deadline(now - 5.0)
    assert stage.loop._next_wake(now).remaining(now) == pytest.approx(MIN_REST_SECONDS)


def test_a_family_is_looked_at_each_second_while_it_is_young_and_seldom_later(
    stage: Stage,
) -> None:
    stage.live("a")
    seen: list[int] = []
    for second in range(1, 30):
        stage.turn(1.0)
        if len(stage.hands.observed) > len(seen):
            seen.append(second)
    young, later = list(range(1, int(YOUNG_SECONDS))), int(YOUNG_SECONDS + FAMILY_SECONDS) - 1
    assert seen == [*young, *range(later, 30, int(FAMILY_SECONDS))]


def test_without_a_look_at_the_processes_it_says_so_once_and_judges_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.live("a")
    stage.live("b")
    with monkeypatch.context() as patch:

        def none_left(_: object, __: float) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

        patch.setattr(Snapshots, "table", none_left)
        for _ in range(3):
            stage.turn(1.0)
    said = [event.sentence for event in stage.told.kept if event.kind is Kind.DAEMON]
    assert said == ["cannot look at the processes now: Too many open files; CPU counts as unknown"]
    assert not stage.hands.observed
    stage.turn(1.0)
    assert stage.hands.observed == ["a", "b"]
    assert not stage.told.faults


def test_who_asks_gets_fresh_clocks_and_no_verdict(stage: Stage) -> None:
    unit = stage.live("a")
    before = unit.state
    stage.clock.advance(10_000.0)
    stage.loop.look(unit, stage.clock.now)
    assert any(clock.deadline.passed(stage.clock.now) for clock in unit.clocks)
    assert unit.state is before
    assert not stage.told.kept
    stage.loop.look(stage.units["b"], stage.clock.now)
    assert stage.units["b"].clocks == ()


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_long_turn_is_cut_between_two_workers(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, forgotten: bool
) -> None:
    """What comes meanwhile is taken in, and a worker that went meanwhile is not looked at."""
    first, second = (stage.live(name) for name in stage.units)
    for unit in (first, second):
        assert unit.life is not None
        unit.life.family = None
    looked_at: list[tuple[str, float]] = []

    def slow(unit: Unit, _life: Life, now: float) -> None:
        looked_at.append((unit.config.name, now))
        stage.clock.advance(2 * SLICE_SECONDS)

    async def breathe() -> float:
        if forgotten:
            del stage.units[second.config.name]
        return stage.clock.now

    monkeypatch.setattr(stage.hands, "note_arrival", slow)
    monkeypatch.setattr(stage.loop, "_breathe", breathe)
    began = stage.clock.now
    stage.turn()
    expected = [(first.config.name, began), (second.config.name, began + 2 * SLICE_SECONDS)]
    assert looked_at == (expected[:1] if forgotten else expected)


def test_a_pause_of_ours_between_two_workers_is_nobodys_fault(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in stage.units:
        stage.live(name)

    async def stopped(seconds: float) -> None:
        stage.clock.advance(max(seconds, 60.0))

    monkeypatch.setattr(asyncio, "sleep", stopped)
    asyncio.run(stage.loop._breathe())
    assert [event.kind for event in stage.told.kept] == [Kind.SUPERVISOR_PAUSED]
