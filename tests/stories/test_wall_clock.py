"""The wall clock steps: nobody notices but people who read times."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from stepwarden_proto.v1 import supervisor_pb2
from support.crew import Crew, shell, span, stub
from support.daemon import TESTS

pytestmark = pytest.mark.timeout(120)

LIBRARIES = [
    *Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"),
    *Path("/usr/lib").glob("faketime/libfaketimeMT.so.1"),
]
STEPS = (3600, -3600, 0)
"""Distance from real time after the steps +3600, -7200, +3600 s."""

DEFAULTS = {
    "startup": {"budget": "9s", "first_step": "100ms"},
    "retry": {"window": "7s"},
    "restart": {"jitter": 0},
    "stop": {"grace": "2s"},
}
FLAT = {"step": {"base": "2s", "per_seq": 0, "max": "30s", "hard_cap": "9s"}}


def by_library(offset: Path) -> dict[str, str]:
    """libfaketime in the daemon; monotonic clocks are left alone."""
    return {
        "LD_PRELOAD": str(LIBRARIES[0]),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def by_patch(offset: Path) -> dict[str, str]:
    """Where there is no libfaketime: the daemon's interpreter is lied to about wall time."""
    return {"STORY_WALL_OFFSET": str(offset), "PYTHONPATH": str(TESTS / "support/lying_clock")}


WAYS = [
    pytest.param(by_patch, id="patched"),
    pytest.param(
        by_library,
        id="libfaketime",
        marks=pytest.mark.skipif(not LIBRARIES, reason="libfaketime is not installed"),
    ),
]


def wall_of(crew: Crew) -> float:
    """Seconds between the daemon's wall clock and ours, by the newest event."""
    newest = crew.events()[-1]
    told = datetime.fromisoformat(newest.time).timestamp()
    return told + (time.monotonic() - newest.monotonic) - time.time()


@pytest.mark.parametrize("way", WAYS)
def test_o_time_1_steps_of_the_wall_clock_change_nothing(
    tmp_path: Path, way: Callable[[Path], dict[str, str]]
) -> None:
    offset = tmp_path / "offset"
    offset.write_text("+0\n")
    workers = {
        "starting": stub("sleep 1000", backend="flat"),
        "healthy": stub("attach; step 4", backend="flat"),
        "unhealthy": stub("attach; spin; freeze", backend="flat"),
        "waiting": shell("exit 1", restart={"delay": "7s"}),
        "stopped": shell("sleep 1000"),
    }
    for section in workers.values():
        # The library is for the daemon: in a worker it breaks sleeping until an instant.
        section["env"] = {"LD_PRELOAD": "", **section.get("env", {})}
    with Crew(workers, env=way(offset), backends={"flat": FLAT}, defaults=DEFAULTS) as crew:
        request = supervisor_pb2.WorkerCommandRequest(name="stopped", wait_seconds=10)
        crew.admin().StopWorker(request, timeout=20)
        late = crew.wait_transition("unhealthy", "UNHEALTHY")
        waiting = crew.wait_transition("waiting", "RESTARTING")
        crew.ready("healthy")
        for wanted in STEPS:
            scratch = tmp_path / "new"
            scratch.write_text(f"{wanted:+d}\n")
            os.replace(scratch, offset)
            # One event is made on each side of each step, so that its time can be read.
            request = supervisor_pb2.WorkerCommandRequest(name="stopped")
            crew.admin().StopWorker(request, timeout=10)
            assert wall_of(crew) == pytest.approx(wanted, abs=60.0)
            seen = crew.status()
            # Those with a clock that runs are judged by their events below.
            assert (seen["healthy"].state, seen["stopped"].state) == ("HEALTHY", "STOPPED")
            for worker in seen.values():
                assert min(worker.state_age_seconds, worker.uptime_seconds) >= 0.0
                assert worker.restart_in_seconds >= 0.0
        dead = crew.wait_transition("unhealthy", "DEAD")
        assert 7.0 <= span(late, dead) <= 7.0 + crew.leniency()
        again = crew.wait_transition("waiting", "STARTING", after=waiting.id)
        assert 7.0 <= span(waiting, again) <= 7.0 + crew.leniency()
        unready = crew.wait_transition("starting", "UNHEALTHY")
        born = crew.turns("starting")[0]
        assert 9.0 <= span(born, unready) <= 9.0 + crew.leniency()
        assert crew.states("healthy") == ["STARTING", "HEALTHY"]
        assert crew.states("stopped")[-1] == "STOPPED"
        newest = [e.sentence for e in crew.events() if e.kind == "daemon"][-1]
        assert "serves 5 workers" in newest, "it has had no trouble since its start"
