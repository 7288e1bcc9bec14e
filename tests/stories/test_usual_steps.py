"""A real daemon learns what is usual of a worker whose steps slow down, hang, and begin anew."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from stepwarden.config import load
from stepwarden.edge.learned_history import read_learned
from stepwarden_proto.v1 import supervisor_pb2
from support.crew import Crew, data, first, stub
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(240)

BACKENDS = {"slow": {"step": {"base": "60s", "per_seq": 0, "max": "10m"}}}
DEFAULTS = {
    "learn_floor": "2s",
    "heartbeat": {"interval": "200ms", "timeout": "20s"},
    "startup": {"budget": "60s", "first_step": "100ms"},
    "retry": {"window": "3s"},
    "restart": {"delay": "100ms", "jitter": 0},
    "stop": {"grace": "2s"},
}
USUAL, HUNG = 0.8, 25.0
WARM = " ".join([f"{USUAL}@8"] * 9)
SLOW = " ".join(["1.4@8"] * 8)


@pytest.fixture
def crew() -> Iterator[Crew]:
    workers = {
        "watched": stub("attach; idle", backend="slow"),
        "judged": stub("attach; idle", backend="slow", learn="on"),
        "blind": stub("attach; idle", backend="slow", learn="off"),
    }
    with Crew(workers, backends=BACKENDS, defaults=DEFAULTS) as crew:
        crew.ready()
        yield crew


def table(crew: Crew, worker: str) -> supervisor_pb2.Learned:
    """What is usual for its rank 0; an empty one while nothing is."""
    request = supervisor_pb2.GetWorkerRequest(name=worker)
    answer: supervisor_pb2.GetWorkerResponse = crew.admin().GetWorker(request, timeout=10.0)
    return answer.learned[0] if answer.learned else supervisor_pb2.Learned()


def steps_of(crew: Crew, worker: str) -> int:
    return sum(row.steps for row in table(crew, worker).rows)


def seconds_of(crew: Crew, worker: str) -> float:
    (row,) = table(crew, worker).rows
    return row.seconds


def cli(crew: Crew, *words: str) -> str:
    done = crew.cli(*words, "--config", str(crew.config))
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_is_usual_is_learned_shown_judged_by_and_outlives_the_daemon(crew: Crew) -> None:
    for worker in ("watched", "judged", "blind"):
        crew.stub(worker).send(f"steps {WARM}")
    for worker in ("watched", "judged"):
        wait_for(partial(knows, crew, worker, 8), 60, "what is usual")
        assert seconds_of(crew, worker) == pytest.approx(USUAL, rel=0.3)
    assert steps_of(crew, "blind") == 0

    # Slow times are followed, and are nobody's alarm.
    crew.stub("watched").send(f"steps {SLOW}")
    wait_for(partial(knows, crew, "watched", 16), 60, "the slow ones too")
    assert 1.2 < table(crew, "watched").slow <= 4.0
    assert crew.status()["watched"].false_alarms == 0

    # A step that hangs: one is only told of, one is judged by it, of one nothing is known.
    for worker in ("watched", "judged", "blind"):
        crew.stub(worker).send("batch 8")
        crew.stub(worker).send(f"freeze {HUNG}")
    dead = crew.wait_transition("judged", "DEAD")
    assert data(dead)["rule"] == "learned"
    assert 9.0 * USUAL <= data(dead)["age"] <= 13.0 * USUAL + crew.leniency()
    cleared = first_of(crew, "watched", "shadow_cleared")
    alarm, death = (
        first_of(crew, "watched", "shadow_alarm"),
        first_of(crew, "watched", "shadow_death"),
    )
    assert data(alarm)["yaml"] == "quiet"
    assert data(alarm)["budget"] >= 2.0
    assert data(death)["how"] == "idle"
    assert data(cleared)["died"] == 1
    assert data(cleared)["seconds"] == pytest.approx(HUNG, abs=1.0)
    for worker in ("watched", "blind"):
        assert crew.states(worker) == ["STARTING", "HEALTHY"]
    assert not [e for e in crew.events("blind") if e.kind.startswith("shadow")]

    # The operator sees the arithmetic and gets budgets from it.
    shape = ("--worker", "watched", "--num-tokens", "8")
    told = cli(crew, "explain", *shape)
    assert "learned" in told
    assert "of the daemon" in told
    assert "usual for rank 0, from" in cli(crew, "status", "watched")
    shown = json.loads(cli(crew, "status", "watched", "--json"))
    assert shown["learn"] == "observe"
    assert shown["learned"][0]["rows"][0]["num_tokens"] == 8
    budgets = cli(crew, "calibrate", "--whole")
    again = crew.directory / "calibrated.yaml"
    again.write_text(budgets)
    assert load(again).workers["watched"].policy.step.budget(1, 8).seconds >= 5 * USUAL

    # Killed, it goes on with what it knew.
    state = Path(load(crew.config).supervisor.state_dir)
    known, before = seconds_of(crew, "watched"), steps_of(crew, "watched")
    wait_for(lambda: read_learned(state), 60, "on disk")
    crew.kill()
    crew.start()
    crew.ready("watched")
    crew.stub("watched").send(f"steps {USUAL}@8 {USUAL}@8 {USUAL}@8")
    wait_for(partial(knows, crew, "watched", before + 3), 60, "goes on")
    assert seconds_of(crew, "watched") == pytest.approx(known, rel=0.3)


def knows(crew: Crew, worker: str, steps: int) -> bool:
    return steps_of(crew, worker) >= steps


def first_of(crew: Crew, worker: str, kind: str) -> Any:
    def found() -> bool:
        return any(event.kind == kind for event in crew.events(worker))

    wait_for(found, 60, f"{kind} of {worker}")
    return first(crew.events(worker), lambda event: event.kind == kind)
