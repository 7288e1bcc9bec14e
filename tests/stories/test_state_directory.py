"""Trouble with the state directory never stops supervision."""

from __future__ import annotations

import shutil

import psutil
from support.daemon import Daemon

WORKER = """
workers:
  w:
    agent: none
    command: [sleep, "600"]
    restart: {delay: 0, limit: 3}
"""


def test_a_worker_is_started_again_though_nothing_can_be_written_down() -> None:
    with Daemon(WORKER) as daemon:
        first = daemon.wait_state("w", "HEALTHY").pid
        shutil.rmtree(daemon.directory / "state" / "lives")
        psutil.Process(first).kill()
        daemon.wait_status(
            "w", lambda seen: seen.state == "HEALTHY" and seen.pid != first, "a second life"
        )
        assert "could not be noted in the state directory" in daemon.log_tail()
