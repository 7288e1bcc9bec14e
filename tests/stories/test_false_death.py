"""The false death, as small as it can be, beside the same work under stepwarden.

A fixed wait of 2 s on a pipe takes 5 s of honest work for a dead worker and kills it. Under
stepwarden the same process doing the same work becomes UNHEALTHY, is seen to work, and lives.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil
import pytest
from support.daemon import ROOT, Daemon

SCRIPT = ROOT / "tests" / "support" / "honest_work.py"
FIXED_WAIT = 2.0
WORK = 5.0
LIMIT = 110.0

pytestmark = pytest.mark.timeout(240)

# The machine that tests may be busy, so the hard cap is far away, and the little CPU that it
# leaves counts as work; the rest is as tight as a fixed wait of 2 s.
BODY = """
backends:
  pipe: {{step: {{base: {wait}s, max: 60s, hard_cap: 100s}}}}
workers:
  honest:
    backend: pipe
    max_num_seqs: 64
    startup: {{budget: 60s, first_step: {wait}s}}
    retry: {{window: 1s, busy_cpu: 0.5}}
    restart: {{on: any_exit, delay: 100ms}}
    command: [{python}, {script}, {requests}, {answers}]
"""


@dataclass
class Pipes:
    """Two named pipes. Each end is held open here, so that no open ever blocks."""

    requests: Path
    answers: Path
    to_worker: IO[bytes]
    from_worker: IO[bytes]

    def ask(self, seconds: float) -> None:
        """Send one request."""
        self.to_worker.write(f"{seconds}\n".encode())

    def answer(self, limit: float) -> str | None:
        """The next line within `limit` seconds; None: there was none."""
        ready, _, _ = select.select([self.from_worker], [], [], limit)
        return self.from_worker.readline().decode().strip() if ready else None


@pytest.fixture
def pipes(tmp_path: Path) -> Iterator[Pipes]:
    requests, answers = tmp_path / "requests", tmp_path / "answers"
    os.mkfifo(requests)
    os.mkfifo(answers)
    with _both_ways(requests) as to_worker, _both_ways(answers) as from_worker:
        yield Pipes(requests, answers, to_worker, from_worker)


@contextmanager
def _both_ways(path: Path) -> Iterator[IO[bytes]]:
    with os.fdopen(os.open(path, os.O_RDWR), "r+b", buffering=0) as stream:
        yield stream


def test_a_fixed_wait_kills_a_worker_that_works(pipes: Pipes) -> None:
    """(b) without us: `poll(timeout)` on the pipe, and the engine is declared dead."""
    command = [sys.executable, str(SCRIPT), str(pipes.requests), str(pipes.answers)]
    paths = ":".join(os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(":") if p)
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": paths}) as worker:
        try:
            assert pipes.answer(LIMIT) == "started"
            pipes.ask(WORK)
            answer = pipes.answer(FIXED_WAIT)
            process = psutil.Process(worker.pid)
            state, cpu = process.status(), process.cpu_times().user
        finally:
            worker.kill()  # what the engine's watchdog does
    assert answer is None
    assert worker.returncode == -9
    assert state != psutil.STATUS_ZOMBIE
    assert cpu > 0.1, "it was at work when it was killed"


def test_under_stepwarden_the_same_work_lives(pipes: Pipes) -> None:
    """(b) with us: the same budget of 2 s, the same 5 s of work, the same process at the end."""
    body = BODY.format(
        wait=FIXED_WAIT,
        python=sys.executable,
        script=SCRIPT,
        requests=pipes.requests,
        answers=pipes.answers,
    )
    with Daemon(body) as daemon:
        assert pipes.answer(LIMIT) == "started"
        before = daemon.wait_state("honest", "HEALTHY")
        pipes.ask(WORK)
        assert pipes.answer(FIXED_WAIT) is None, "late for a fixed wait"
        late = daemon.wait_transition("honest", "UNHEALTHY", limit=LIMIT)
        answer = pipes.answer(LIMIT)
        daemon.wait_transition("honest", "HEALTHY", after=late.id, limit=LIMIT)
        after = daemon.wait_status("honest", lambda seen: seen.false_alarms == 1, "a false alarm")
        events = daemon.events("honest")
    assert answer is not None
    assert len(answer) == 64
    assert late.cause == "step"
    assert (after.pid, after.incarnation) == (before.pid, before.incarnation)
    assert after.state == "HEALTHY"
    assert (after.restarts_used, after.deaths) == (0, 0)
    assert not [event for event in events if event.to_state == "DEAD"]
    assert [event for event in events if event.kind == "retry"], "5 s do not fit into one window"


CROWD = """
backends:
  cpu: {{step: {step}}}
workers:
  crowd:
    backend: cpu
    max_num_seqs: 64
    startup: {{budget: 100s, first_step: 60s}}
    # Longer than a step takes on a machine that gives us hardly any CPU: then it looks like a hang.
    retry: {{window: 20s}}
    command: [{python}, -m, stepwarden.demo.worker, --batch, "64"]
"""
SHIPPED = "{base: 300s, per_seq: 1s, max: 30m}"
TIGHT = "{base: 100ms, per_seq: 1ms, max: 10s, hard_cap: 100s}"


@pytest.mark.parametrize("step", [SHIPPED, TIGHT], ids=["shipped", "tight"])
def test_a_cpu_with_batch_64_and_many_steps_has_no_death(step: str) -> None:
    """(c) With the shipped policy nothing happens at all; with a tight one nobody dies."""
    with Daemon(CROWD.format(step=step, python=sys.executable)) as daemon:
        first = daemon.wait_state("crowd", "HEALTHY", LIMIT)
        last = daemon.wait_status(
            "crowd",
            lambda seen: bool(seen.ranks) and seen.ranks[0].steps_ended >= 100,
            "100 steps on",
            LIMIT,
        )
        events = daemon.events("crowd")
    turns = [event.to_state for event in events if event.kind == "transition"]
    assert "DEAD" not in turns, [event.sentence for event in events]
    assert (last.pid, last.incarnation) == (first.pid, first.incarnation)
    assert last.deaths == 0
    if step == SHIPPED:
        assert turns[-1] == "HEALTHY"
        assert "UNHEALTHY" not in turns
