"""The demo's server as a process of its own, without a supervisor."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from stepwarden.demo import control
from stepwarden.demo.worker import EXIT_ENGINE_DEAD
from support.daemon import ROOT
from support.waiting import wait_for

LIMIT = 60.0


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sw-") as directory:
        yield Path(directory) / "c.sock"


@contextlib.contextmanager
def running(path: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """The server, serving; killed at the end of the block at the latest."""
    command = [sys.executable, "-m", "stepwarden.demo.worker", "--control", str(path), *words]
    paths = [os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(":") if p]
    env = os.environ | {"PYTHONPATH": ":".join(paths)}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, cwd=ROOT
    ) as server:
        try:
            assert server.stdout is not None
            assert "serving" in server.stdout.readline()
            yield server
        finally:
            server.kill()


def stats_when(path: Path, key: str, least: float) -> control.Message:
    """The server's numbers as soon as `key` is at least `least`."""

    def looked() -> control.Message | None:
        stats = control.ask(path, {"do": "stats"}, LIMIT)
        value = stats[key]
        assert isinstance(value, int | float)
        return stats if value >= least else None

    return wait_for(looked, LIMIT, key, every=0.05)


def test_serves_and_ends_cleanly_at_term(path: Path) -> None:
    with running(path, "--batch", "2", "--max-num-seqs", "8") as server:
        stats_when(path, "finished", 20)
        server.send_signal(signal.SIGTERM)
        assert server.wait(LIMIT) == 0


def test_its_own_fixed_timeout_ends_an_honest_step(path: Path) -> None:
    """The failure that stepwarden is for: the engine was healthy, and its watchdog ended it."""
    words = ("--batch", "8", "--max-num-seqs", "8", "--engine-timeout", "1")
    with running(path, *words) as server:
        stats_when(path, "in_flight", 8)
        control.ask(path, {"do": "slow", "seconds": 4.0}, LIMIT)
        output, _ = server.communicate(timeout=LIMIT)
    assert server.returncode == EXIT_ENGINE_DEAD
    assert "execute_model timed out after 1 s" in output


def test_the_same_step_ends_when_nobody_kills_it(path: Path) -> None:
    words = ("--batch", "8", "--max-num-seqs", "8", "--engine-timeout", "1")
    with running(path, *words, "--on-engine-timeout", "report"):
        stats_when(path, "in_flight", 8)
        control.ask(path, {"do": "slow", "seconds": 4.0}, LIMIT)
        stats_when(path, "engine_timeouts", 1)
        stats_when(path, "slow_step_over", 1)


def rests(pid: int) -> bool:
    """Whether it takes no CPU at all for half a second."""
    before = ticks(pid)
    time.sleep(0.5)  # the span that is measured
    return ticks(pid) == before


def ticks(pid: int) -> list[str]:
    """CPU time so far, of itself and the kernel for it."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]


def test_frozen_means_no_step_and_no_cpu(path: Path) -> None:
    def steps() -> object:
        return control.ask(path, {"do": "stats"}, LIMIT)["steps"]

    with running(path, "--batch", "2", "--max-num-seqs", "8") as server:
        control.ask(path, {"do": "freeze"}, LIMIT)
        wait_for(lambda: rests(server.pid), LIMIT, "it still takes CPU")
        before = steps()
        wait_for(lambda: rests(server.pid), LIMIT, "it takes CPU again")
        assert steps() == before
        server.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            server.wait(0.5)
