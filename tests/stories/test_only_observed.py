"""`mode: observe` with a real daemon: no signal, whatever the verdict; enforced by a reload."""

from __future__ import annotations

import os
import signal

import psutil
import pytest
from support.crew import data, stub
from support.reloading import Reloaded
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(240)

BACKENDS = {"flat": {"step": {"base": "1s", "per_seq": 0, "max": "30s", "hard_cap": "5s"}}}
DEFAULTS = {
    "heartbeat": {"interval": "200ms", "timeout": "5s"},
    "startup": {"budget": "60s", "first_step": "100ms"},
    "retry": {"window": "2s"},
    "restart": {"delay": "100ms", "jitter": 0},
    "stop": {"grace": "1s", "signal": "TERM"},
}


def test_an_observed_worker_is_judged_and_never_signalled() -> None:
    workers = {"w": stub("attach; idle", backend="flat", mode="observe")}
    with Reloaded(workers, backends=BACKENDS, defaults=DEFAULTS) as crew:
        crew.ready()
        pid = crew.status()["w"].pid
        crew.stub("w").send("freeze 12")
        shadow = crew.wait_event(lambda e: e.kind == "shadow_death", worker="w")
        assert data(shadow)["rule"] == "observe"
        assert "would be DEAD" in shadow.sentence
        seen = crew.status()["w"]
        assert (seen.state, seen.mode, seen.would_be_dead) == ("UNHEALTHY", "observe", True)

        alarm = crew.wait_event(lambda e: e.kind == "false_alarm", worker="w")
        assert data(alarm)["would_be_dead"] == 1
        crew.wait_state("w", "HEALTHY")
        assert crew.status()["w"].pid == pid
        assert crew.stub("w").signals() == []

        # It ends by itself and leaves a child: that is named, not signalled.
        crew.stub("w").send("tree")
        children = psutil.Process(pid).children(recursive=True)
        assert children
        crew.stub("w").tell("exit 1")
        failed = crew.wait_transition("w", "FAILED")
        assert "are left alone, for its mode is observe" in failed.sentence
        left = [child for child in children if child.is_running()]
        assert set(crew.status()["w"].leftover_pids) == {child.pid for child in left}
        for child in left:
            os.kill(child.pid, signal.SIGKILL)
        again = crew.wait_transition("w", "HEALTHY", after=failed.id)
        assert crew.stub("w").signals() == []

        crew.stub("w").send("freeze")
        crew.wait_event(lambda e: e.kind == "shadow_death" and e.id > again.id, worker="w")
        crew.rewrite({"w": stub("attach; idle", backend="flat", mode="enforce")})
        assert crew.reload().applied
        dead = crew.wait_transition("w", "DEAD", after=again.id)
        crew.wait_transition("w", "HEALTHY", after=dead.id)
        wait_for(lambda: "SIGTERM" in {each.name for each in crew.stub("w").signals()}, 10)
