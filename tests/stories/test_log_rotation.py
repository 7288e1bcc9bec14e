"""O-LOGS-2: log rotation around a real daemon and a worker whose output it captures."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from support import rotations
from support.daemon import Daemon
from support.waiting import wait_for

WORKER = """
workers:
  w:
    backend: cpu
    agent: none
    shell: "while :; do echo tick; sleep 0.1; done"
    output: {mode: capture, path: %s}
    stop: {grace: 1s}
"""


def has_records(path: Path) -> bool:
    """Whether it holds whole records and nothing else."""
    if not path.exists() or not path.read_bytes().endswith(b"\n"):
        return False
    return all(json.loads(line)["timestamp"] for line in path.read_text().splitlines())


def has_ticks(path: Path) -> bool:
    return path.exists() and set(path.read_bytes().splitlines()) == {b"tick"}


def test_o_logs_2_both_logs_follow_their_paths_under_each_rotation(tmp_path: Path) -> None:
    own = tmp_path / "own" / "stepwarden.log"
    output = tmp_path / "output" / "current.log"
    settings = f"  runner: spawn\n  log: {{file: {own}}}"
    with Daemon(WORKER % output.parent, supervisor=settings) as daemon:
        pid = daemon.wait_state("w", "HEALTHY").pid
        for rotate in rotations.ALL:
            wait_for(lambda: has_records(own) and has_ticks(output))
            rotate(own)
            rotate(output)
            os.kill(daemon.pid, signal.SIGUSR1)
            wait_for(own.exists)
            assert daemon.cli("stop", "w", "--config", str(daemon.config)).returncode == 0
            assert daemon.cli("start", "w", "--config", str(daemon.config)).returncode == 0
            pid = daemon.wait_state("w", "HEALTHY").pid
        wait_for(lambda: has_records(own) and has_ticks(output))
        assert daemon.status()["w"].pid == pid
        assert "reload" not in "".join(event.kind for event in daemon.events())
        assert "timestamp" not in daemon.log_tail()  # its standard error


def test_a_signal_for_rotation_does_nothing_to_a_daemon_without_a_log_file() -> None:
    with Daemon(WORKER % "/dev/null/nowhere") as daemon:
        daemon.wait_state("w", "HEALTHY")
        for _ in range(3):
            os.kill(daemon.pid, signal.SIGUSR1)
            assert daemon.status()["w"].state == "HEALTHY"
