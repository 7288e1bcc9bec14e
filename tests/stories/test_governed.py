"""Most workers turn suspect at once: nobody is killed for a while, exits restart all the same."""

from __future__ import annotations

import os
import signal
import urllib.request

import pytest
from support.crew import Crew, data, span, stub
from support.daemon import free_port
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(240)

FREEZE_MAX = 8.0
WINDOW = 2.0
DEFAULTS = {
    "heartbeat": {"interval": "200ms", "timeout": "3s", "hard_cap": "60s"},
    "startup": {"budget": "60s"},
    "retry": {"window": WINDOW},
    "restart": {"delay": "100ms", "jitter": 0},
    "stop": {"grace": "2s"},
}
STOPPED = ("a", "b", "c")


def crew_with(governor: str, *names: str) -> Crew:
    workers = {name: stub() for name in names}
    text = f'  governor: {governor}\n  metrics: {{listen: "127.0.0.1:0"}}\n'
    return Crew(workers, supervisor=text.replace(':0"', f':{free_port()}"'), defaults=DEFAULTS)


def metric(crew: Crew, name: str) -> float:
    """One value of the page of metrics."""
    line = next(text for text in crew.config.read_text().splitlines() if "metrics" in text)
    address = line.split('"')[1]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    return float(next(text for text in lines if text.startswith(f"{name} ")).split()[-1])


def test_a_majority_that_is_stopped_at_once_lives_until_the_freeze_is_over() -> None:
    with crew_with(f"{{freeze_max: {FREEZE_MAX:g}s}}", *STOPPED, "leaver", "well") as crew:
        crew.ready()
        for name in STOPPED:
            os.kill(crew.status()[name].pid, signal.SIGSTOP)
        frozen = crew.wait_event(lambda e: e.kind == "governor" and data(e)["frozen"] == 1)
        assert "the cause is presumed common" in frozen.sentence
        assert (data(frozen)["suspects"], data(frozen)["independent"]) == (3, 5)
        wait_for(lambda: metric(crew, "stepwarden_governor_frozen") == 1.0, 10)

        crew.stub("leaver").tell("exit 1")  # exits are never frozen
        born = crew.wait_transition("leaver", "HEALTHY", after=frozen.id)
        assert span(frozen, born) < FREEZE_MAX

        thawed = crew.wait_event(lambda e: e.kind == "governor" and data(e)["frozen"] == 0)
        assert FREEZE_MAX <= span(frozen, thawed) <= FREEZE_MAX + crew.leniency() + 1.0
        for name in STOPPED:
            dead = crew.wait_transition(name, "DEAD")
            assert dead.id > thawed.id
            late = crew.wait_transition(name, "UNHEALTHY")
            assert data(dead)["windows"] >= 2
            held = [e for e in crew.events(name) if data(e).get("held_up") == "freeze"]
            assert held
            assert "its death is held up: kills are frozen" in held[0].sentence
            assert span(late, held[0]) >= WINDOW
            crew.wait_transition(name, "HEALTHY", after=dead.id)
        assert crew.status()["well"].deaths == 0
        assert metric(crew, "stepwarden_governor_freezes_total") == 1.0


def test_a_single_one_is_killed_as_ever() -> None:
    with crew_with(f"{{freeze_max: {FREEZE_MAX:g}s}}", "a", "b", "c") as crew:
        crew.ready()
        os.kill(crew.status()["a"].pid, signal.SIGSTOP)
        late = crew.wait_transition("a", "UNHEALTHY")
        dead = crew.wait_transition("a", "DEAD")
        assert span(late, dead) <= WINDOW + crew.leniency()
        assert not [e for e in crew.events() if e.kind == "governor"]


def test_beyond_the_bucket_one_after_the_other_dies_in_the_order_of_their_verdicts() -> None:
    numbers = "{deaths: 1, within: 5s, freeze_max: 0}"
    with crew_with(numbers, *STOPPED) as crew:
        crew.ready()
        pids = [crew.status()[name].pid for name in STOPPED]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        deaths = sorted(
            (crew.wait_transition(name, "DEAD") for name in STOPPED), key=lambda e: e.id
        )
        assert span(deaths[0], deaths[1]) >= 3.0
        assert span(deaths[1], deaths[2]) >= 3.0
        asked = [e for e in crew.events() if data(e).get("held_up") == "bucket"]
        first = list(dict.fromkeys(e.worker for e in asked))
        assert [e.worker for e in deaths[1:]] == first
