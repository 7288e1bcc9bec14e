"""Trouble with the state directory never stops supervision."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import psutil
from stepwarden.errors import ExitCode
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


def test_a_file_in_place_of_the_state_directory_is_told(tmp_path: Path) -> None:
    for state in (tmp_path / "file", tmp_path / "file" / "below"):
        (tmp_path / "file").touch()
        config = tmp_path / "stepwarden.yaml"
        head = f"supervisor: {{runtime_dir: {tmp_path}/run, state_dir: {state}}}\n"
        config.write_text(head + WORKER, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "stepwarden", "run", str(config)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == ExitCode.REFUSED
        assert done.stderr.splitlines(keepends=True)[-1] == (
            f"stepwarden: cannot use the state directory {state}: a file is in the way;"
            " supervisor.state_dir must be a directory\n"
        )
