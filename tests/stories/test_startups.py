"""Slow loads, loads that never end, slow first steps: one daemon, all at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from stepwarden_proto.v1 import supervisor_pb2
from support.crew import Crew, Section, data, first, span, stub

pytestmark = pytest.mark.timeout(180)

STARTUP, WINDOW = 20.0, 3.0
ALLOWANCE = 15.0
DEFAULTS = {
    "heartbeat": {"timeout": "3s"},
    "startup": {"budget": STARTUP, "first_step": "100ms"},
    "retry": {"window": WINDOW},
    "restart": {"delay": "100ms", "jitter": 0},
    "stop": {"grace": "2s"},
}
FLAT = {"step": {"base": "2s", "per_seq": 0, "max": "30s"}}
STEPS = "attach; steps 9 0.5 4"


def worker(script: str, **sections: object) -> Section:
    return stub(script, backend="flat", **sections)


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    allowance = {"first_step": ALLOWANCE}
    workers = {
        "loads": worker("sleep 12; attach; idle"),
        "silent": worker("sleep 1000"),
        "exits": worker("sleep 3; exit 1", restart={"limit": 2}),
        "jit": worker(STEPS, startup=allowance),
        "plain": worker(STEPS),
    }
    with Crew(workers, backends={"flat": FLAT}, defaults=DEFAULTS) as crew:
        yield crew


def test_o_start_1_an_exit_while_loading_is_seen_at_once(crew: Crew) -> None:
    dead = crew.wait_transition("exits", "DEAD")
    started = first(crew.events("exits"), lambda e: e.kind == "started")
    assert dead.cause == "exit"
    assert 3.0 <= span(started, dead) <= 3.0 + 2.0 + crew.leniency(), "not at 20 s"
    failed = crew.wait_transition("exits", "FAILED")
    assert "gave up after 2 deaths" in failed.sentence
    assert crew.status()["exits"].last_exit == "exit code 1"


def test_o_start_2_without_an_allowance_the_plain_budget_holds(crew: Crew) -> None:
    late = crew.wait_transition("plain", "UNHEALTHY")
    assert data(late)["step"] == 1
    assert 2.0 <= data(late)["age"] <= 2.0 + crew.leniency()


def test_o_start_1_a_load_of_12_seconds_is_starting_and_then_healthy(crew: Crew) -> None:
    """Neither the heartbeat timeout of 3 s nor the step budget of 2 s counts before the attach."""
    seen = crew.status()["loads"]
    if seen.state == "STARTING":
        assert 0.0 < seen.startup_left_seconds <= STARTUP
    healthy = crew.wait_transition("loads", "HEALTHY")
    assert crew.states("loads") == ["STARTING", "HEALTHY"]
    assert span(crew.turns("loads")[0], healthy) >= 12.0
    assert crew.status()["loads"].deaths == 0


def test_o_start_1_a_worker_that_is_silent_for_ever_is_late_at_its_budget(crew: Crew) -> None:
    waiting = crew.status()["silent"]
    assert waiting.state == "STARTING"
    assert waiting.state_age_seconds + waiting.startup_left_seconds == pytest.approx(STARTUP, 0.01)
    late = crew.wait_transition("silent", "UNHEALTHY")
    dead = crew.wait_transition("silent", "DEAD")
    crew.wait_event(lambda e: e.kind == "started" and e.incarnation == "2", worker="silent")
    turns = crew.turns("silent")
    assert [e.to_state for e in turns][:6] == [
        *("STARTING", "UNHEALTHY", "DEAD", "RESTARTING", "STARTING")
    ]
    assert late.cause == dead.cause == "startup"
    assert STARTUP <= span(turns[0], late) <= STARTUP + crew.leniency()
    assert WINDOW <= span(late, dead) <= WINDOW + crew.leniency()
    assert (crew.status()["silent"].restarts_used, crew.status()["silent"].deaths) == (1, 1)


def third_step_is_late_first_is_not(crew: Crew, incarnation: str) -> None:
    def is_late(event: supervisor_pb2.Event) -> bool:
        return event.to_state == "UNHEALTHY" and event.incarnation == incarnation

    late = crew.wait_event(is_late, worker="jit")
    back = crew.wait_transition("jit", "HEALTHY", after=late.id)
    events = [e for e in crew.events("jit") if e.incarnation == incarnation]
    assert first(events, is_late).id == late.id
    assert data(late)["step"] == 3
    assert 2.0 <= data(late)["age"] <= 2.0 + crew.leniency()
    assert back.incarnation == incarnation


def test_o_start_2_the_first_step_of_each_life_has_its_allowance(crew: Crew) -> None:
    """9 s, 0.5 s, 4 s: only the third is late; after a restart the first has 15 s again."""
    third_step_is_late_first_is_not(crew, "1")
    request = supervisor_pb2.WorkerCommandRequest(name="jit")
    crew.admin().RestartWorker(request, timeout=10)
    third_step_is_late_first_is_not(crew, "2")
    assert crew.status()["jit"].false_alarms == 2
