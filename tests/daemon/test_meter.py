"""What the loop leaves behind for a scrape: counters from events, gauges once a second."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from stepwarden.config import load
from stepwarden.core import turn as core
from stepwarden.core.awareness import Awareness
from stepwarden.core.event import Event, Kind
from stepwarden.core.heartbeat import BeatFacts
from stepwarden.core.lifecycle import State
from stepwarden.core.worker import WorkerState
from stepwarden.daemon import gather
from stepwarden.daemon.life import Life
from stepwarden.daemon.meter import Meter
from stepwarden.daemon.unit import Unit
from stepwarden.edge.metrics_page import MetricsPage
from stepwarden.edge.page_reader import PageReader
from stepwarden.edge.reload_views import ReloadCounts
from stepwarden_agent.page_file import create_page
from stepwarden_agent.progress import Ring
from support.clocks import FakeClock

FILE = """
workers:
  a: {command: [x], backend: cpu, restart: {limit: 3}}
  b: {command: [x], backend: cpu}
"""
A = (("worker", "a"),)


class Stage:
    """Two workers, a meter, and a clock that stands."""

    def __init__(self, tmp_path: Path) -> None:
        file = tmp_path / "f.yaml"
        file.write_text(FILE)
        self.pages = tmp_path / "pages"
        self.pages.mkdir()
        self.clock = FakeClock(1000.0)
        self.units = {n: Unit(one, WorkerState(n)) for n, one in load(file).workers.items()}
        self.told: list[Event] = []
        self.used = 0
        self.trouble = ""
        self.meter = Meter(
            self.units,
            lambda _unit, _now: self.used,
            lambda: self.trouble,
            self.clock,
            self.told.append,
        )
        self.page = MetricsPage(
            lambda: self.meter.snapshot, lambda: self.meter.turned_at, self.clock
        )

    def live(self, name: str, incarnation: int = 1) -> Life:
        """Have this worker live, healthy and ready."""
        now = self.clock.now
        life = Life(
            name,
            incarnation,
            f"{name}.{incarnation}.x",
            self.pages,
            PageReader(self.pages),
            spawned_at=now,
        )
        unit = self.units[name]
        unit.life = life
        unit.state = WorkerState(
            name,
            State.HEALTHY,
            incarnation=incarnation,
            spawned_at=now,
            since=now,
            ready_at=now,
            came_up=frozenset({"0"}),
        )
        return life

    def turn(self, seconds: float = 1.0, late: float = 0.0) -> None:
        """Turn so much later, `late` after it was due."""
        self.clock.advance(seconds)
        began = self.clock.now
        self.meter.turned(began - late, began)

    def value(self, name: str, **labels: str) -> float | None:
        """One sample of the page as it is now; None where it is not there."""
        text = self.page.render().decode()
        found = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        return found.get((f"stepwarden_{name}", tuple(sorted(labels.items()))))

    def of_a(self, name: str, **labels: str) -> float | None:
        return self.value(name, worker="a", **labels)

    def of_rank(self, name: str) -> float | None:
        return self.value(f"rank_{name}", worker="a", rank="0")


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def moved(origin: str, target: str, cause: str = "", worker: str = "a") -> Event:
    return Event(Kind.TRANSITION, "x", worker, "1", origin, target, cause, "0")


def beat(seq: int, cpu: float, steps: int = 0, pid: int = 70) -> BeatFacts:
    return BeatFacts(
        "0", seq, pid, 5, 1.0, False, steps_begun=steps, steps_ended=steps, cpu_seconds=cpu
    )


def test_an_alarm_and_its_death_are_scored(stage: Stage) -> None:
    stage.turn()
    late: dict[str, float | str] = {
        "step": 7,
        "rule": "yaml",
        "diagnosis": "stopped",
        "stacks": "wedged",
    }
    alarm, death = moved("HEALTHY", "UNHEALTHY", "step"), moved("UNHEALTHY", "DEAD", "step")
    stage.meter.event(replace(alarm, data={**late, "age": 10.0}))
    stage.meter.event(replace(death, data={**late, "age": 40.0}))
    stage.turn()
    labels = {"cause": "step", "diagnosis": "stopped", "outcome": "confirmed"}
    for scored, seconds in {"alarm": 10.0, "death": 40.0}.items():
        told = {"scored": scored, "rule": "yaml"}
        assert stage.of_a("worker_verdicts_scored_total", **told, **labels) == 1
        assert stage.of_a("worker_detection_seconds_sum", **told) == seconds


def test_events_are_counted_by_worker_and_kind(stage: Stage) -> None:
    stage.turn()
    assert stage.of_a("worker_deaths_total", cause="step") == 0
    assert stage.of_a("worker_restarts_total") == 0
    stage.meter.event(moved("UNHEALTHY", "DEAD", "step"))
    stage.meter.event(moved("DEAD", "RESTARTING"))
    stage.meter.event(moved("RESTARTING", "STARTING"))
    stage.meter.event(moved("STOPPED", "STARTING", worker="b"))
    alarm = {"seconds": 7.0, "budget": 5.0}
    stage.meter.event(Event(Kind.FALSE_ALARM, "x", "a", "1", cause="step", data=alarm))
    stage.meter.event(Event(Kind.SUPERVISOR_PAUSED, "x", data={"seconds": 2.5}))
    stage.turn()
    assert stage.of_a("worker_deaths_total", cause="step") == 1
    assert stage.of_a("worker_deaths_total", cause="exit") == 0
    assert stage.of_a("worker_restarts_total") == 1
    assert stage.value("worker_restarts_total", worker="b") == 0
    way = {"from": "UNHEALTHY", "to": "DEAD", "cause": "step"}
    assert stage.of_a("worker_transitions_total", **way) == 1
    assert stage.of_a("worker_false_alarms_total", cause="step") == 1
    assert stage.of_a("worker_false_alarm_duration_seconds_sum") == 7.0
    assert stage.of_a("worker_false_alarm_duration_seconds_bucket", le="5") == 0
    assert stage.of_a("worker_false_alarm_duration_seconds_bucket", le="10") == 1
    assert stage.value("events_total", kind="transition") == 4
    assert stage.value("events_total", kind="retry") == 0
    assert stage.value("supervisor_paused_seconds_total") == 2.5


def test_gauges_of_a_worker(stage: Stage) -> None:
    stage.live("a", incarnation=4)
    stage.used = 2
    stage.trouble = "disk full"
    stage.turn(10.0)
    assert stage.of_a("worker_state", state="HEALTHY") == 1
    assert stage.of_a("worker_state", state="DEAD") == 0
    assert stage.of_a("worker_state_age_seconds") == 10.0
    assert stage.of_a("worker_uptime_seconds") == 10.0
    assert stage.of_a("worker_incarnation") == 4
    assert stage.of_a("worker_restart_budget_limit") == 3
    assert stage.of_a("worker_restart_budget_remaining") == 1
    assert stage.of_a("worker_suspicions", cause="step") == 0
    assert stage.value("worker_uptime_seconds", worker="b") == 0
    assert stage.value("supervisor_workers") == 2
    assert stage.value("supervisor_trouble") == 1


def test_an_open_step_and_its_budget(stage: Stage) -> None:
    life = stage.live("a")
    made = create_page(str(stage.pages), "0", "idle")
    ring = Ring(lambda: None)
    ring.attach(made.words)
    handle = ring.begin(8, 8, "decode")
    begun = life.pages.read(float("inf"))["0"].steps[0].begin
    stage.clock.now = begun + 12.0
    gather.read_pages(life, lambda _: True, stage.clock.now)
    unit = stage.units["a"]
    evidence = gather.evidence_of(life)
    unit.clocks = core.clocks_of(unit.state, unit.policy, evidence, Awareness(), stage.clock.now)
    stage.turn(0.0)
    assert stage.of_rank("step_age_seconds") == pytest.approx(12.0)
    assert stage.of_rank("step_budget_seconds") == 308.0
    assert stage.of_rank("step_budget_remaining_seconds") == pytest.approx(296.0)
    assert (stage.of_rank("open_steps"), stage.of_rank("steps_total")) == (1, 0)
    assert stage.of_rank("beat_age_seconds") is None
    ring.end(handle)
    gather.read_pages(life, lambda _: True, stage.clock.now)
    stage.turn()
    assert (stage.of_rank("step_age_seconds"), stage.of_rank("open_steps")) == (0, 0)
    assert stage.of_rank("step_budget_seconds") is None
    assert stage.of_rank("steps_total") == 1
    life.pages.close()


def test_counters_of_a_rank_only_rise(stage: Stage) -> None:
    life = stage.live("a")
    gather.take_beat(life, beat(1, 5.0, 10), 1000.0)
    gather.take_beat(life, beat(1, 5.0, 10), 1000.5)  # the same again is refused
    stage.turn()
    assert (stage.of_rank("cpu_seconds_total"), stage.of_rank("steps_total")) == (5.0, 10)
    assert stage.of_rank("beats_refused_total") == 1
    assert stage.of_rank("beat_age_seconds") == 1.0
    assert stage.of_rank("steps_unrecorded_total") is None, "only a page knows of those"
    gather.take_beat(life, beat(1, 1.0, 3, pid=71), 1002.0)  # another process of the rank
    stage.turn()
    assert (stage.of_rank("cpu_seconds_total"), stage.of_rank("steps_total")) == (6.0, 13)


def test_a_page_that_is_read_before_the_first_beat_is_counted_once(stage: Stage) -> None:
    life = stage.live("a")
    made = create_page(str(stage.pages), "0", "idle")
    ring = Ring(lambda: None)
    ring.attach(made.words)
    for _ in range(10):
        ring.end(ring.begin(1, 1, "decode"))
    gather.read_pages(life, lambda _: True, stage.clock.now)
    stage.turn()
    assert stage.of_rank("steps_total") == 10
    page = life.ranks["0"].page
    assert page is not None
    first = replace(beat(1, 5.0, 10, pid=page.pid), start_ticks=page.start_ticks)
    gather.take_beat(life, first, stage.clock.now)
    stage.turn()
    assert stage.of_rank("steps_total") == 10
    assert stage.of_rank("cpu_seconds_total") == 5.0
    life.pages.close()


def test_ranks_end_with_their_life(stage: Stage) -> None:
    life = stage.live("a")
    gather.take_beat(life, beat(1, 5.0, 10), 1000.0)
    stage.turn()
    assert stage.of_a("worker_ranks") == 1
    unit = stage.units["a"]
    unit.state = replace(unit.state, lifecycle=State.RESTARTING)
    stage.turn()
    assert stage.of_rank("steps_total") is None
    again = stage.live("a", incarnation=2)
    gather.take_beat(again, beat(1, 1.0, 2), 1000.0)
    stage.turn()
    assert stage.of_rank("steps_total") == 2


def test_a_worker_that_is_removed_takes_its_series_along(stage: Stage) -> None:
    stage.live("a")
    stage.meter.event(moved("UNHEALTHY", "DEAD", "step"))
    stage.turn()
    unit = stage.units.pop("a")
    stage.turn()
    assert b'worker="a"' not in stage.page.render()
    assert stage.value("worker_restarts_total", worker="b") == 0
    stage.meter.event(moved("DEAD", "STOPPED"))  # what is left to say of it
    stage.units["a"] = unit
    stage.turn()
    assert stage.of_a("worker_deaths_total", cause="step") == 0


def test_a_snapshot_is_made_once_a_second_and_the_loops_age_is_that_of_the_scrape(
    stage: Stage,
) -> None:
    stage.turn()
    first = stage.meter.snapshot
    for _ in range(4):
        stage.turn(0.1)
    assert stage.meter.snapshot is first
    stage.turn(0.6)
    assert stage.meter.snapshot is not first
    before = stage.page.render()
    stage.clock.advance(42.0)  # nothing turns any more
    assert stage.value("supervisor_loop_age_seconds") == pytest.approx(42.0)
    assert stage.page.render().count(b"\n") == before.count(b"\n")


def test_lateness_counts_only_where_the_loop_was_not_woken_early(stage: Stage) -> None:
    stage.turn(1.0, late=0.03)
    stage.turn(1.0, late=-0.5)
    assert stage.value("supervisor_loop_lag_seconds_count") == 1
    assert stage.value("supervisor_loop_lag_seconds_bucket", le="0.025") == 0
    assert stage.value("supervisor_loop_lag_seconds_bucket", le="0.05") == 1
    assert stage.value("supervisor_turn_duration_seconds_count") == 2


def test_reloads(stage: Stage) -> None:
    stage.turn()
    assert stage.value("config_last_reload_successful") == 1
    assert stage.value("config_last_reload_success_timestamp_seconds") is not None
    counts = ReloadCounts(5e9, succeeded=2, failed=1, last_failed=True)
    stage.meter.follow_reloads(counts)
    stage.turn()
    assert stage.value("config_last_reload_successful") == 0
    assert stage.value("config_reloads_total", result="applied") == 2
    assert stage.value("config_reloads_total", result="failed") == 1
    assert stage.value("config_last_reload_success_timestamp_seconds") == 5e9
    counts.last_failed = False
    stage.turn()
    assert stage.value("config_last_reload_successful") == 1


def test_a_fault_of_ours_is_told_once_and_ends_nothing(stage: Stage) -> None:
    stage.turn()
    before = stage.meter.snapshot
    broken: Any = None
    whole = stage.units["a"].state
    stage.units["a"].state = broken
    stage.turn()
    stage.turn()
    assert stage.meter.snapshot is before
    assert stage.meter.faults == 2
    assert stage.meter.turned_at == stage.clock.now
    (event,) = stage.told
    assert event.sentence.startswith("a fault of ours in the metrics: AttributeError")
    stage.units["a"].state = whole
    stage.turn()
    assert stage.meter.snapshot.taken_at == stage.clock.now  # it goes on by itself


def test_what_is_counted_of_steps_is_bounded(stage: Stage) -> None:
    """However odd the batches and phases are, a worker has few series."""
    life = stage.live("a")
    made = create_page(str(stage.pages), "0", "idle")
    ring = Ring(lambda: None)
    ring.attach(made.words)
    for seqs in (-5, 0, 1, 3, 7, 100, 10**6, 2**62):
        for phase in ("prefill", "decode", "warmup", "unknown"):
            ring.end(ring.begin(seqs, 1, phase))
            ring.end(ring.begin(seqs, 1, phase))
            gather.read_pages(life, lambda _: True, stage.clock.now)
            stage.turn()
    text = stage.page.render().decode()
    series = [line for line in text.splitlines() if line.startswith("stepwarden_step_interval_se")]
    batches = {line.partition('batch="')[2].partition('"')[0] for line in series}
    assert batches == {"unknown", "1", "4", "8", "128", "+Inf"}
    assert len(series) <= 3 * len(batches) * 13
    life.pages.close()
