"""When stacks are looked at, what waits for it and for how long, and what a disk can do to it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from stepwarden.clock import SystemClock
from stepwarden.config import SupervisorSettings, WorkerConfig
from stepwarden.config.settings import IncidentSettings
from stepwarden.core.clocks import Cause, RunningClock
from stepwarden.core.deadline import Deadline
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import ProcessId
from stepwarden.core.lifecycle import State
from stepwarden.core.policy import WorkerPolicy
from stepwarden.core.stacks import Frame, Place, ThreadStack
from stepwarden.core.verdict import Suspicion
from stepwarden.core.worker import Outcome, WorkerState
from stepwarden.daemon import incidents
from stepwarden.daemon.hooks import Hooks
from stepwarden.daemon.incidents import Incidents
from stepwarden.daemon.life import Life, RankMemory
from stepwarden.daemon.tasks import Tasks
from stepwarden.daemon.timeline import CALM_ROWS, TENSE_ROWS, Timeline
from stepwarden.daemon.unit import Unit
from stepwarden.edge import bundle
from stepwarden.edge.page_reader import PageReader
from stepwarden.edge.stack_capture import Capture, Look, StackCapture
from stepwarden.edge.views import RecordedEvent

CLOCK = SystemClock()
ME = ProcessId(os.getpid(), 1)
HUNG = (ThreadStack(ME.pid, "MainThread", True, False, (Frame("acquire", "/e.py", 5),)),)


@dataclass
class Looks:
    """Stands for the captures: `hangs` never ends, each look is counted."""

    hangs: bool = False
    count: int = 0

    async def capture(self, subjects: Mapping[str, ProcessId | None], *_: Any) -> Capture:
        self.count += 1
        if self.hangs:
            await asyncio.Event().wait()
        looks = {name: Look(process, HUNG) for name, process in subjects.items()}
        return Capture(CLOCK.monotonic(), 0.01, looks)


@dataclass
class Stage:
    """One worker with one rank, whose turns the test takes."""

    directory: Path
    settings: IncidentSettings = field(default_factory=lambda: IncidentSettings(limit=1.0))
    looks: Looks = field(default_factory=Looks)
    told: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        supervisor = SupervisorSettings(
            self.directory,
            self.directory / "state",
            self.directory / "a",
            self.directory / "b",
            incidents=self.settings,
        )
        config = WorkerConfig("w", WorkerPolicy("gpu", window=30.0), shell="true")
        self.unit = Unit(config, WorkerState("w", lifecycle=State.HEALTHY, incarnation=1))
        pages = PageReader(self.directory)
        self.life = Life("w", 1, "w.1.abc", self.directory, pages, main=ME)
        self.life.ranks["0"] = RankMemory(attached_at=0.0, process=ME)
        self.unit.life = self.life
        self.tasks = Tasks(self.told.append)
        hooks = Hooks(CLOCK, self.told.append, lambda _: None, self.tasks)
        capture = cast("StackCapture", self.looks)
        self.incidents = Incidents({"w": self.unit}, supervisor, capture, hooks)

    def turn(self, state: WorkerState, *events: Event, now: float | None = None) -> None:
        """What one turn came to."""
        self.unit.state = state
        for number, event in enumerate(events):
            self.incidents.event(RecordedEvent(number, "2026-01-02T03:04:05+00:00", 1.0, event))
        at = CLOCK.monotonic() if now is None else now
        self.incidents.follow(self.unit, Outcome(state, events=list(events)), at)

    def suspect(self) -> None:
        now = CLOCK.monotonic()
        clock = RunningClock("0", Cause.STEP, now, 1.0, Deadline(now), 99.0, now + 99.0, "1 s")
        suspicion = Suspicion(clock, now, now + 30.0, None, now + 30.0)
        state = replace(self.unit.state, lifecycle=State.UNHEALTHY, suspicions=(suspicion,))
        self.turn(state, moved("HEALTHY", "UNHEALTHY"))

    def die(self) -> None:
        state = replace(self.unit.state, lifecycle=State.DEAD, suspicions=())
        self.turn(state, moved("UNHEALTHY", "DEAD"))

    def kept(self) -> list[bundle.Summary]:
        return bundle.summaries(self.incidents.directory)

    def kinds(self, kind: Kind) -> list[str]:
        return [event.sentence for event in self.told if event.kind is kind]

    async def settled(self, done: Callable[[], bool]) -> None:
        deadline = Deadline.after(CLOCK.monotonic(), 30.0)
        while not done():
            assert not deadline.passed(CLOCK.monotonic()), self.told
            await asyncio.sleep(0.01)


def moved(before: str, after: str) -> Event:
    return Event(Kind.TRANSITION, f"it is {after}", "w", "1", before, after, "step", "0")


def played(stage: Stage, story: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await story()
        await stage.tasks.finish(20.0)

    try:
        asyncio.run(run())
    finally:
        stage.life.pages.close()


def test_looked_at_at_the_deadline_and_once_before_the_verdict(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    async def story() -> None:
        stage.suspect()
        await stage.settled(lambda: len(stage.kept()) == 1)
        now = CLOCK.monotonic()
        for later in (1.0, 10.0, 20.0):
            stage.turn(stage.unit.state, now=now + later)
        assert stage.looks.count == 1
        for later in (28.5, 29.0, 29.5):
            stage.turn(stage.unit.state, now=now + later)
            await stage.settled(lambda: bool(stage.life.stacks))
        assert stage.looks.count == 2
        assert stage.life.stacks["0"].place is Place.WEDGED

    played(stage, story)


def test_a_healthy_worker_is_never_looked_at(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    async def story() -> None:
        for _ in range(5):
            stage.turn(stage.unit.state)
        assert stage.looks.count == 0

    played(stage, story)


@pytest.fixture
def each_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """However soon the next alarm comes, it is looked at."""
    monkeypatch.setattr(incidents, "REST_SECONDS", 0.0)


@pytest.mark.usefixtures("each_alarm")
def test_what_recovered_leaves_no_stale_stacks(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    async def story() -> None:
        stage.suspect()
        await stage.settled(lambda: bool(stage.kept()))
        well = replace(stage.unit.state, lifecycle=State.HEALTHY, suspicions=())
        stage.turn(well, moved("UNHEALTHY", "HEALTHY"))
        assert stage.life.stacks == {}
        stage.suspect()
        await stage.settled(lambda: len(stage.kept()) == 2)
        assert stage.life.stacks == {}

    played(stage, story)


def test_a_burial_waits_for_a_look_that_hangs_no_longer_than_its_limit(tmp_path: Path) -> None:
    stage = Stage(tmp_path, looks=Looks(hangs=True))

    async def story() -> None:
        stage.suspect()
        await stage.settled(lambda: stage.looks.count == 1)
        stage.die()
        begun = CLOCK.monotonic()
        await stage.incidents.before_burial(stage.unit)
        assert 0.9 <= CLOCK.monotonic() - begun < 20.0
        await stage.settled(lambda: [s.head["kind"] for s in stage.kept()] == ["dead"])

    played(stage, story)


def test_a_window_too_short_for_a_second_look_gets_it_before_the_burial(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    async def story() -> None:
        stage.suspect()
        await stage.settled(lambda: len(stage.kept()) == 1)
        stage.die()
        await stage.incidents.before_burial(stage.unit)
        assert stage.looks.count == 2
        await stage.settled(lambda: len(stage.kept()) == 2)
        (dead,) = [s for s in stage.kept() if s.head["kind"] == "dead"]
        assert dead.head["stacks"] == {"0": "wedged"}
        assert dead.head["follows"] == stage.kept()[0].id

    played(stage, story)


def test_a_stop_waits_for_nothing_and_keeps_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path, looks=Looks(hangs=True))

    async def story() -> None:
        stage.turn(replace(stage.unit.state, lifecycle=State.STOPPING))
        await stage.incidents.before_burial(stage.unit)
        assert stage.kept() == []

    played(stage, story)


def test_where_nothing_can_be_written_it_is_told_and_counted(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    (tmp_path / "state").write_text("a file where the directory would be")

    async def story() -> None:
        stage.suspect()
        await stage.settled(lambda: bool(stage.kinds(Kind.INCIDENT)))
        assert "cannot be kept: Not a directory" in stage.kinds(Kind.INCIDENT)[0]
        assert stage.incidents.counts.not_kept == 1

    played(stage, story)


def test_of_alarms_in_a_row_the_first_is_kept_and_a_death_always(tmp_path: Path) -> None:
    stage = Stage(tmp_path)

    async def story() -> None:
        stage.suspect()
        await stage.settled(lambda: bool(stage.kept()))
        for _ in range(3):
            well = replace(stage.unit.state, lifecycle=State.HEALTHY, suspicions=())
            stage.turn(well, moved("UNHEALTHY", "HEALTHY"))
            stage.suspect()
        await stage.tasks.finish(20.0)
        assert stage.looks.count == 1
        stage.die()
        await stage.incidents.before_burial(stage.unit)
        await stage.settled(lambda: len(stage.kept()) == 2)
        assert [sealed.head["kind"] for sealed in stage.kept()] == ["unhealthy", "dead"]

    played(stage, story)


@pytest.mark.usefixtures("each_alarm")
@pytest.mark.parametrize("keep", [0, 2])
def test_no_more_bundles_are_kept_than_the_file_says(tmp_path: Path, keep: int) -> None:
    stage = Stage(tmp_path, IncidentSettings(keep=keep))

    async def story() -> None:
        for number in range(4):
            well = replace(stage.unit.state, lifecycle=State.HEALTHY, suspicions=())
            stage.turn(well, moved("UNHEALTHY", "HEALTHY"))
            stage.suspect()
            await stage.settled(lambda wanted=number + 1: stage.looks.count >= wanted)  # type: ignore[misc]
            await stage.tasks.finish(20.0)
            await stage.settled(lambda: stage.incidents.counts.kept >= min(keep, 1))
        assert stage.looks.count == 4

    played(stage, story)
    assert len(stage.kept()) == keep


@pytest.mark.parametrize("kind", [Kind.SHADOW_ALARM, Kind.SHADOW_DEATH])
def test_what_only_learned_numbers_suspect_is_looked_at_and_no_bundle_is_made(
    tmp_path: Path, kind: Kind
) -> None:
    stage = Stage(tmp_path)

    async def story() -> None:
        for _ in range(3):
            stage.turn(stage.unit.state, Event(kind, "a shadow", "w", "1", rank="0"))
            await stage.settled(lambda: bool(stage.kinds(Kind.CAPTURED)))
        assert stage.looks.count == 1
        assert stage.kept() == []

    played(stage, story)


def test_a_half_bundle_of_a_killed_daemon_is_swept_at_the_start(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    left = stage.incidents.directory / ".20260102T030405Z-w-1-dead-0001.new"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")

    async def story() -> None:
        await stage.incidents.start()
        await stage.settled(lambda: not left.exists())

    played(stage, story)


def test_a_timeline_is_bounded_and_in_order(tmp_path: Path) -> None:
    life = Life("w", 1, "w.1.abc", tmp_path, PageReader(tmp_path))
    life.ranks["0"] = RankMemory(attached_at=0.0)
    timeline, now = Timeline(life.name), 1000.0
    for second in range(3000):
        timeline.sample(life, second > 2000, now + second)
    rows = timeline.copy().rows(now + 3000)["0"]
    ages = [row[0] for row in rows]
    assert len(rows) <= CALM_ROWS + TENSE_ROWS
    assert ages == sorted(ages, reverse=True)  # type: ignore[type-var]
    assert ages[-1] == 1.0
    assert ages[0] is not None
    assert ages[0] >= 590
    life.pages.close()
