"""What a real daemon recorded is judged the same again, and by other rules."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from stepwarden.cli.main import main
from support.crew import Crew, stub
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(150)

BUDGET = 3.0
FLAT = {"step": {"base": BUDGET, "per_seq": 0, "max": "60s"}}
DEFAULTS = {
    "heartbeat": {"interval": "200ms", "timeout": "10s"},
    "startup": {"budget": "30s", "first_step": "5s"},
    "retry": {"window": "2s"},
    "restart": {"delay": "100ms", "jitter": 0, "limit": 5},
    "stop": {"grace": "4s"},
}


def replay(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    capsys.readouterr()
    code = main(["replay", *words, "--json"])
    told: dict[str, object] = json.loads(capsys.readouterr().out)
    assert code == 0, told["unlike"]
    return told


def sorts(told: object) -> list[str]:
    assert isinstance(told, list)
    return [mark["sort"] for mark in told]


def test_a_frozen_worker_is_judged_the_same_again_and_otherwise_by_other_rules(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its step hangs (SIGSTOP) with a budget of 3 s; by one of 40 s nobody would have noticed."""
    workers = {name: stub("attach; step 2", backend="flat") for name in ("frozen", "well")}
    with Crew(workers, backends={"flat": FLAT}, defaults=DEFAULTS) as crew:
        crew.wait_state("frozen", "HEALTHY")
        crew.wait_state("well", "HEALTHY")
        wait_for(lambda: crew.status()["frozen"].ranks[0].step > 0, 30, "no step is open")
        os.kill(crew.status()["frozen"].pid, signal.SIGSTOP)
        wait_for(lambda: crew.status()["frozen"].incarnation == "2", 60, "not restarted")
        crew.wait_state("frozen", "HEALTHY")
        state = str(crew.directory / "state")
        happened = ["alarm", "death", "restart"]
        # A recording may be read while it is written; the newest second may not be there yet.
        wait_for(lambda: sorts(replay(capsys, state)["recorded"]) == happened, 30, "not recorded")
        crew.kill()
        own = replay(capsys, state)  # it was never closed
        assert sorts(own["recorded"]) == happened
        other = crew.directory / "other.yaml"
        other.write_text(Path(crew.config).read_text().replace("3.0", "40"))
        told = replay(capsys, state, "--config", str(other))
        assert sorts(told["replayed"]) == []
        assert len(told["changes"]) == 3  # type: ignore[arg-type]
        crew.start()
