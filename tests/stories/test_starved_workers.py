"""A worker whose CPU quota is spent gets its time back, once, and no hard cap moves."""

from __future__ import annotations

import pytest
from support.cgroups import quota
from support.crew import Crew, data, stub

pytestmark = pytest.mark.timeout(180)

BUDGET, WINDOW, CAP = 4.0, 3.0, 16.0
BACKENDS = {"flat": {"step": {"base": BUDGET, "per_seq": 0, "max": "30s", "hard_cap": CAP}}}
DEFAULTS = {
    "heartbeat": {"interval": "200ms", "timeout": "60s"},
    "startup": {"budget": "60s", "first_step": "100ms"},
    "retry": {"window": WINDOW},
    "restart": {"delay": "100ms", "jitter": 0},
    "stop": {"grace": "2s"},
}


def test_a_throttled_worker_is_late_later_and_dies_at_its_hard_cap() -> None:
    """It spins, and gets 4 % of a core, which alone would count as not working."""
    workers = {"w": stub("attach; idle", backend="flat"), "free": stub(backend="flat")}
    with Crew(workers, backends=BACKENDS, defaults=DEFAULTS) as crew:
        crew.ready()
        crew.stub("w").send("spin")
        crew.stub("w").send("freeze")
        crew.stub("free").send("freeze")
        with quota(crew.status()["w"].pid, 0.04):
            ordinary = crew.wait_transition("free", "UNHEALTHY")
            late = crew.wait_transition("w", "UNHEALTHY")
            dead = crew.wait_transition("w", "DEAD")
        assert data(ordinary)["starved"] < 0.5 * BUDGET
        starved = data(late)["starved"]
        assert 0.4 * BUDGET <= starved <= BUDGET
        assert data(late)["age"] >= BUDGET + starved - 0.1
        assert "more that it could not use" in late.sentence
        assert "hard cap" in dead.sentence
        assert CAP <= data(dead)["age"] <= CAP + crew.leniency()
