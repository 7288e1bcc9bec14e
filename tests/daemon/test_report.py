"""Reporting: who is told what, how loud, and how often."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from stepwarden.config import load
from stepwarden.core.event import Event, Kind
from stepwarden.core.lifecycle import State
from stepwarden.core.ready_rule import ReadyRule
from stepwarden.core.worker import WorkerState
from stepwarden.daemon.report import Reporter
from stepwarden.daemon.unit import Unit
from stepwarden.edge.health_service import HealthSnapshot
from stepwarden.edge.views import RecordedEvent
from support.clocks import FakeClock

FILE = """
workers:
  one: {command: [a], backend: cpu}
  two: {command: [a], backend: cpu}
  by-hand: {command: [a], backend: cpu, autostart: false}
"""


class Journal:
    """Keeps events in memory; `trouble` as the real one says it."""

    def __init__(self) -> None:
        self.kept: list[RecordedEvent] = []
        self.trouble = ""

    def append(self, event: Event, monotonic: float, wall: datetime) -> RecordedEvent:
        recorded = RecordedEvent(len(self.kept) + 1, wall.isoformat(), monotonic, event)
        self.kept.append(recorded)
        return recorded


class Listener:
    """The health server, the service manager and the log: notes what each of them is told."""

    def __init__(self) -> None:
        self.snapshots: list[HealthSnapshot] = []
        self.lines: list[str] = []
        self.watchdogs = 0
        self.logged: list[tuple[str, str, dict[str, Any]]] = []

    def publish(self, snapshot: HealthSnapshot) -> None:
        self.snapshots.append(snapshot)

    def status(self, line: str) -> None:
        self.lines.append(line)

    def watchdog(self) -> None:
        self.watchdogs += 1

    def __getattr__(self, level: str) -> Any:
        def log(sentence: str, **fields: Any) -> None:
            self.logged.append((level, sentence, fields))

        return log


class Desk:
    """A reporter and all that it reports to."""

    def __init__(self, units: dict[str, Unit]) -> None:
        self.clock = FakeClock(100.0)
        self.journal = Journal()
        self.told = Listener()
        journal: Any = self.journal
        told: Any = self.told
        self.units = units
        self.followed: list[RecordedEvent] = []
        self.reporter = Reporter(journal, told, told, self.clock, told)
        self.reporter.attach(units, self.followed.append)

    def go(self, name: str, state: State) -> None:
        unit = self.units[name]
        unit.state = replace(unit.state, lifecycle=state)
        self.reporter.changed()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    file = tmp_path / "f.yaml"
    file.write_text(FILE)
    return Desk({name: Unit(one, WorkerState(name)) for name, one in load(file).workers.items()})


def test_each_event_goes_to_journal_log_and_followers_with_the_same_number(desk: Desk) -> None:
    event = Event(Kind.TRANSITION, "it is late", "one", "3", "HEALTHY", "UNHEALTHY", "step", "0")
    desk.reporter.events([event], 77.0)
    (recorded,) = desk.journal.kept
    assert (recorded.event, recorded.monotonic) == (event, 77.0)
    assert datetime.fromisoformat(recorded.time).tzinfo == UTC
    assert desk.followed == [recorded]
    fields = {"worker": "one", "incarnation": "3", "cause": "step", "rank": "0"}
    fields |= {"state": "HEALTHY->UNHEALTHY", "kind": "transition"}
    assert desk.told.logged == [("warning", "it is late", fields)]


@pytest.mark.parametrize(
    ("kind", "target", "level"),
    [
        (Kind.TRANSITION, "HEALTHY", "info"),
        (Kind.TRANSITION, "UNHEALTHY", "warning"),
        (Kind.TRANSITION, "DEAD", "warning"),
        (Kind.TRANSITION, "FAILED", "error"),
        (Kind.REFUSED, "", "warning"),
        (Kind.AGENT_SILENT, "", "warning"),
        (Kind.OVER_ROWS, "", "warning"),
        (Kind.LEFT_OPEN, "", "warning"),
        (Kind.STARTED, "", "info"),
        (Kind.FALSE_ALARM, "", "info"),
    ],
)
def test_how_loud_an_event_is(desk: Desk, kind: Kind, target: str, level: str) -> None:
    desk.reporter.note(Event(kind, "x", "one", to_state=target))
    ((said, _, fields),) = desk.told.logged
    assert said == level
    assert "rank" not in fields, "what an event has not is not logged as an empty text"


def test_ready_is_when_all_that_start_by_themselves_are_healthy(desk: Desk) -> None:
    for name, ready in (("one", False), ("two", True)):
        desk.go(name, State.HEALTHY)
        desk.reporter.turned(desk.clock.now)
        serving = desk.told.snapshots[-1].serving
        assert (serving[f"worker/{name}"], serving["ready"]) == (True, ready)
    assert not serving["worker/by-hand"]
    desk.go("two", State.UNHEALTHY)
    desk.reporter.turned(desk.clock.now)
    assert not desk.told.snapshots[-1].serving["ready"]
    assert desk.told.lines[-1] == "3 workers: 1 HEALTHY, 1 UNHEALTHY, 1 STOPPED"


def test_each_turn_stamps_and_feeds_the_watchdog_and_only_changes_are_worked_out(
    desk: Desk,
) -> None:
    for second in range(5):
        desk.reporter.turned(100.0 + second)
    assert [each.stamp for each in desk.told.snapshots] == [100.0, 101.0, 102.0, 103.0, 104.0]
    assert (desk.told.watchdogs, len(desk.told.lines)) == (5, 1)
    assert desk.reporter.turned_at == 104.0


def test_trouble_of_the_journal_is_said_once_each_time_it_comes(desk: Desk) -> None:
    for trouble in ("disk full", "disk full", "", "", "disk full"):
        desk.journal.trouble = trouble
        desk.reporter.turned(100.0)
    assert [(level, text) for level, text, _ in desk.told.logged] == [("error", "disk full")] * 2


def test_a_fault_of_ours_is_an_event_of_its_worker(desk: Desk) -> None:
    desk.reporter.fault("one", ValueError("odd"), 5.0)
    (recorded,) = desk.journal.kept
    assert (recorded.event.kind, recorded.event.worker) == (Kind.DAEMON, "one")
    assert recorded.event.sentence == "a fault of ours in its turn: ValueError: odd"
    assert [level for level, _, _ in desk.told.logged] == ["exception", "info"]


def test_a_fault_that_comes_with_each_turn_does_not_fill_the_history(desk: Desk) -> None:
    for second in range(120):
        desk.reporter.fault("one", ValueError("odd"), 5.0 + second)
        desk.reporter.fault("two", ValueError("odd"), 5.0 + second)
    assert [recorded.event.worker for recorded in desk.journal.kept] == ["one", "two"] * 2
    desk.reporter.fault("one", ValueError("another"), 125.0)
    assert desk.journal.kept[-1].event.sentence.endswith("ValueError: another")


@pytest.mark.parametrize(
    ("rule", "healthy", "ready"),
    [
        (ReadyRule(), {"one", "two"}, True),
        (ReadyRule(at_least=2), {"two", "by-hand"}, True),
        (ReadyRule(at_least=2), {"by-hand"}, False),
        (ReadyRule(workers=("by-hand",)), {"by-hand"}, True),
        (ReadyRule(workers=("by-hand",)), {"one", "two"}, False),
    ],
)
def test_what_ready_means_is_the_operators_choice(
    desk: Desk, rule: ReadyRule, healthy: set[str], ready: bool
) -> None:
    desk.reporter.turned(99.0)
    for name in healthy:
        desk.go(name, State.HEALTHY)
    desk.reporter.judge_ready_by(rule)
    desk.reporter.turned(100.0)
    assert desk.told.snapshots[-1].serving["ready"] is ready
