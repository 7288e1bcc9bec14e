"""Probes of our health while every core is wanted several times over.

How fast they are answered is for `benchmarks/health_load.py`; here no probe may see a daemon that
is well as NOT_SERVING, or wait without end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from stepwarden.edge.health_table import STALE_AFTER_SECONDS
from support.crew import SERVING_STATUS, Crew, health_stub, stub

pytestmark = [pytest.mark.timeout(180), pytest.mark.soak]

PROBES = 60
PROBE_SECONDS = 10.0


@contextmanager
def burners(count: int) -> Iterator[None]:
    """Processes that do nothing but compute."""
    burn = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(burn) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_o_hlth_3_a_daemon_under_full_load_serves_each_probe() -> None:
    """Each probe is a connection of its own, as a kubelet's is."""
    with Crew({name: stub("attach; step 20") for name in ("a", "b", "c")}) as crew:
        crew.ready()
        answers = []
        with burners(2 * (os.cpu_count() or 1)):
            for _ in range(PROBES):
                with health_stub(crew.health_address) as asked:
                    answers.append(SERVING_STATUS[asked("", timeout=PROBE_SECONDS)[0]])
                time.sleep(0.05)
        if crew.host.worst > STALE_AFTER_SECONDS / 2:
            pytest.skip(f"this machine itself stood still for {crew.host.worst:.1f} s")
        assert set(answers) == {"SERVING"}
