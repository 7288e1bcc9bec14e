"""Hung, idle, slow, spinning: stories that share one daemon and all begin at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from stepwarden_proto.v1 import supervisor_pb2
from support.crew import Crew, HealthLog, Section, data, first, span, stub

pytestmark = pytest.mark.timeout(240)

BUDGET, WINDOW, CAP = 2.0, 3.0, 5.0
FLAT = {"step": {"base": BUDGET, "per_seq": 0, "max": "30s", "hard_cap": CAP}}
PATIENT = {"step": {"base": BUDGET, "per_seq": 0, "max": "30s", "hard_cap": 9}}
ROWS = {"step": {"rows": {1: "1s", 8: "2s", 32: "6s", 64: "10s"}, "max": "60s"}}
DEFAULTS = {
    "heartbeat": {"interval": "200ms", "timeout": "5s"},
    "startup": {"budget": "60s", "first_step": "100ms"},
    "retry": {"window": WINDOW},
    "restart": {"delay": "100ms", "jitter": 0},
    "stop": {"grace": "2s"},
}
IDLE_SECONDS = 15 * BUDGET
SEQUENCE = "steps 5@32 0.3@1 8@48 9@200 0.3@0 0.3@-1 0.3@4294967295"


def flat(script: str = "attach; idle", backend: str = "flat") -> Section:
    return stub(script, backend=backend, max_num_seqs=64)


@dataclass
class Field:
    """A running crew, when each story began, and the health answers of the frozen worker."""

    crew: Crew
    begun: dict[str, float]
    health: HealthLog

    def tell(self, worker: str, *commands: str) -> None:
        for command in commands:
            self.begun[worker] = time.monotonic()
            self.crew.stub(worker).send(command)


@pytest.fixture(scope="module")
def field() -> Iterator[Field]:
    workers = {
        "frozen": flat("attach; spin | attach; idle"),
        "short": flat(),
        "slow": flat(),
        "idle": flat(),
        "polling": flat("attach; spin"),
        "gpu-bound": flat("attach; step 2"),
        "spinning": flat("attach; spin | attach; idle", "patient"),
        "rows": stub(backend="rows", max_num_seqs=8),
        "nobody": stub(backend="rows", max_num_seqs=8),
        "crowd": stub(backend="rows", max_num_seqs=8),
    }
    backends = {"flat": FLAT, "patient": PATIENT, "rows": ROWS}
    with Crew(workers, backends=backends, defaults=DEFAULTS) as crew:
        crew.ready()
        health = HealthLog(crew.health_address, "worker/frozen")
        told = Field(crew, {}, health)
        told.tell("rows", SEQUENCE)
        told.tell("frozen", "freeze")
        told.tell("short", "freeze 1.8")
        told.tell("slow", "freeze 3.5")
        told.tell("nobody", "steps 2.9@-1")
        told.tell("crowd", "steps 11@4294967295")
        told.begun["idle"] = told.begun["polling"] = time.monotonic()
        try:
            yield told
        finally:
            health.close()


def test_o_hang_4_the_row_is_that_of_the_batch_of_the_step_in_flight(field: Field) -> None:
    crew = field.crew
    budgets: dict[int, float] = {}

    def over(worker: supervisor_pb2.Worker) -> bool:
        for rank in worker.ranks:
            if rank.step and rank.HasField("budget_seconds"):
                budgets[rank.num_seqs] = rank.budget_seconds
        return bool(worker.ranks) and worker.ranks[0].steps_ended >= 7

    ended = crew.wait_status("rows", over, "through its 7 steps")
    assert {batch: budgets[batch] for batch in (32, 48, 200)} == {32: 6.0, 48: 10.0, 200: 10.0}
    assert ended.state == "HEALTHY"
    assert ended.deaths == ended.false_alarms == 0
    events = crew.events("rows")
    assert crew.states("rows") == ["STARTING", "HEALTHY"]
    warnings = [event.sentence for event in events if event.kind == "over_rows"]
    assert sum("200 seqs is beyond the last row 64" in text for text in warnings) == 1
    assert sum("unknown batch; its budget is that of 8 seqs" in text for text in warnings) <= 1
    assert len(warnings) <= 2


@pytest.mark.parametrize(
    ("worker", "budget", "rule"),
    [("nobody", 2.0, "row 8: 2 s"), ("crowd", 10.0, "beyond the last row 64")],
)
def test_o_hang_4_a_batch_that_is_nonsense_or_too_large_has_a_budget_too(
    field: Field, worker: str, budget: float, rule: str
) -> None:
    """Batch -1 counts as max_num_seqs, 4294967295 has the last row; nobody is killed for it."""
    late = field.crew.wait_transition(worker, "UNHEALTHY")
    assert budget <= data(late)["age"] <= budget + field.crew.leniency()
    assert rule in data(late)["arithmetic"]
    field.crew.wait_transition(worker, "HEALTHY", after=late.id)
    warnings = [e for e in field.crew.events(worker) if e.kind == "over_rows"]
    assert len(warnings) == 1
    assert field.crew.status()[worker].deaths == 0


def test_o_hang_1_a_frozen_step_is_unhealthy_at_its_budget_and_dead_at_its_cap(
    field: Field,
) -> None:
    crew, begun = field.crew, field.begun["frozen"]
    back = crew.wait_event(
        lambda e: e.to_state == "HEALTHY" and e.incarnation == "2", worker="frozen"
    )
    turns = crew.turns("frozen")
    assert [e.to_state for e in turns] == [
        *("STARTING", "HEALTHY", "UNHEALTHY", "DEAD", "RESTARTING", "STARTING", "HEALTHY")
    ]
    late, dead = turns[2], turns[3]
    assert BUDGET <= late.monotonic - begun <= BUDGET + crew.leniency()
    assert WINDOW <= span(late, dead) <= WINDOW + crew.leniency()
    assert (late.cause, dead.cause, late.rank) == ("step", "step", "0")
    assert data(late)["step"] == 1
    assert data(late)["budget"] == BUDGET
    assert data(late)["arithmetic"] == "2 s + 0 s * 4 seqs = 2 s"
    assert "step 1 (decode, 4 seqs, 4 tokens) of rank 0 has run for" in late.sentence
    assert "working; hard cap 5 s reached" in dead.sentence
    started = [data(e)["pid"] for e in crew.events("frozen") if e.kind == "started"]
    assert len(set(started)) == 2
    assert crew.status()["frozen"].pid == started[1]
    # From UNHEALTHY on, but for the second that the answer may take, until the new life is up.
    told = field.health.between(late.monotonic + 1.0, back.monotonic - 0.1)
    assert told == {"NOT_SERVING"}


def test_o_hang_1_a_step_of_1_8_seconds_stays_healthy(field: Field) -> None:
    field.crew.wait_status("short", lambda w: w.ranks[0].steps_ended == 1, "over")
    assert field.crew.states("short") == ["STARTING", "HEALTHY"]


def test_o_hang_1_a_step_of_3_5_seconds_recovers_with_the_same_pid(field: Field) -> None:
    late = field.crew.wait_transition("slow", "UNHEALTHY")
    field.crew.wait_transition("slow", "HEALTHY", after=late.id)
    assert field.crew.states("slow") == ["STARTING", "HEALTHY", "UNHEALTHY", "HEALTHY"]
    status = field.crew.status()["slow"]
    started = first(field.crew.events("slow"), lambda e: e.kind == "started")
    assert (status.pid, status.incarnation) == (data(started)["pid"], "1")
    assert (status.deaths, status.restarts_used, status.false_alarms) == (0, 0, 1)
    alarm = first(field.crew.events("slow"), lambda e: e.kind == "false_alarm")
    assert 3.5 <= data(alarm)["seconds"] <= 3.5 + field.crew.leniency()


def test_o_hang_3_extra_time_for_a_busy_worker_has_a_limit_and_is_shown(field: Field) -> None:
    """Hard cap 9 s: windows are granted, said in events and status, and then it is DEAD.

    The beats of each 0.2 s go on all the time and refresh nothing.
    """
    crew = field.crew
    field.tell("spinning", "freeze")
    crew.wait_event(lambda e: e.kind == "retry", worker="spinning")
    status = crew.status()["spinning"]
    assert status.windows_granted >= 2
    assert status.ranks[0].beat_age_seconds < 0.2 + crew.leniency()
    dead = crew.wait_transition("spinning", "DEAD")
    granted = [e for e in crew.events("spinning") if e.kind == "retry"]
    # Where the machine let it starve its windows are longer, and fewer fit below the cap.
    assert [data(e)["windows"] for e in granted] in ([2, 3], [2])
    assert min(data(e)["cpu_percent"] for e in granted) > 5.0
    age = dead.monotonic - field.begun["spinning"]
    assert 9.0 <= age <= 9.0 + crew.leniency()


def test_o_hang_3_low_cpu_alone_marks_nobody(field: Field) -> None:
    """A spins at 100 % and dies of its frozen step; B steps each 0.5 s at next to no CPU."""
    field.crew.wait_transition("frozen", "DEAD")
    status = field.crew.wait_status(
        "gpu-bound", lambda w: w.ranks[0].steps_ended >= 20, "10 s further on"
    )
    assert field.crew.states("gpu-bound") == ["STARTING", "HEALTHY"]
    assert status.ranks[0].cpu_percent < 50.0


@pytest.mark.parametrize("worker", ["idle", "polling"])
def test_o_hang_2_an_idle_worker_is_no_hung_worker(field: Field, worker: str) -> None:
    """30 s of nothing in flight, at 0 % and at 100 % CPU: not one event. Silence is found still."""
    crew = field.crew
    before = len(crew.events(worker))
    left = field.begun[worker] + IDLE_SECONDS - time.monotonic()
    if left > 0:
        with pytest.raises(AssertionError, match="not within"):
            crew.wait_event(lambda e: e.monotonic > field.begun[worker], worker=worker, limit=left)
    assert len(crew.events(worker)) == before
    assert crew.states(worker) == ["STARTING", "HEALTHY"]
    field.tell(worker, "mute")
    late = crew.wait_transition(worker, "UNHEALTHY")
    assert late.cause == "heartbeat"
    assert 5.0 - 0.3 <= late.monotonic - field.begun[worker] <= 5.0 + crew.leniency()
    assert "no sign of life from rank 0" in late.sentence
