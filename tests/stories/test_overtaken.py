"""Two operators at once: the last command holds, and the first is told so."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from support.crew import Crew, shell

pytestmark = pytest.mark.timeout(120)


def test_a_stop_that_another_operators_start_overtakes_ends_at_once_with_5() -> None:
    workers = {"slow-to-end": shell("trap '' TERM; while :; do sleep 1; done")}
    with Crew(workers, defaults={"stop": {"grace": "8s"}}) as crew, ThreadPoolExecutor(1) as other:
        crew.ready()
        where = ("--config", str(crew.config))
        stop = other.submit(crew.cli, "stop", "slow-to-end", "--wait", "300", *where, limit=60.0)
        stopping = crew.wait_transition("slow-to-end", "STOPPING")
        assert crew.cli("start", "slow-to-end", "--no-wait", *where).returncode == 0
        done = stop.result()
        assert (done.returncode, done.stdout) == (5, "")
        assert done.stderr.startswith(
            "stepwarden: the stop of slow-to-end was overtaken by a later start; it is STOPPING"
        )
        crew.wait_transition("slow-to-end", "HEALTHY", after=stopping.id)
        assert "STOPPED" not in crew.states("slow-to-end")
