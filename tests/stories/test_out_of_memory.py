"""The kernel ends one worker for lack of memory: nobody else is touched."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import psutil
from support.cgroups import short_of_memory
from support.crew import Crew, shell, stub

LIMIT = 300 << 20
GREEDY = f"grown = b'x' * {2 * LIMIT}"


def test_o_sysd_2_the_kernel_kills_one_worker_of_a_supervisor_with_a_memory_limit() -> None:
    """A group of 300 MB around daemon and workers, as MemoryMax= of the service makes it."""
    greedy = f"{shlex.quote(sys.executable)} -c {shlex.quote(GREEDY)}"
    waits = f"while ! mv grow grown 2>/dev/null; do sleep 0.1; done; exec {greedy}"
    workers = {"w1": shell(waits), "w2": stub("attach; idle")}
    with Crew(workers, defaults={"restart": {"delay": "100ms", "jitter": 0}}) as crew:
        crew.ready()
        before = crew.status()
        assert crew.process is not None
        daemon = psutil.Process(crew.process.pid)
        pids = [daemon.pid, *(child.pid for child in daemon.children(recursive=True))]
        with short_of_memory(LIMIT, *pids) as group:
            (Path(psutil.Process(before["w1"].pid).cwd()) / "grow").touch()
            dead = crew.wait_transition("w1", "DEAD")
            assert "oom_kill 1\n" in (group / "memory.oom_control").read_text()
            assert "SIGKILL" in dead.sentence
            crew.wait_event(lambda e: e.to_state == "HEALTHY" and e.incarnation == "2", worker="w1")
            now = crew.status()
            assert now["w2"].pid == before["w2"].pid
            assert now["w2"].incarnation == before["w2"].incarnation
            assert (now["w1"].deaths, now["w2"].deaths) == (1, 0)
            assert now["w1"].last_exit == "signal SIGKILL"
            assert crew.process.poll() is None
            assert crew.stub("w2").signals() == []
