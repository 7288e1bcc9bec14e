"""The daemon is killed while the exec of a worker hangs in the kernel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.crew import Crew
from support.mounts import without_cgroups
from support.process_world import HOLD_LEASE
from support.truth import Seen, lives_on, marked
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(120)


class NoCgroups(Crew):
    """Its daemon sees no control group, in which such a start would be found."""

    def command(self) -> list[str]:
        return without_cgroups(super().command())


def running(crew: Crew, program: Path) -> list[Seen]:
    return [one for one in marked(crew.mark, {}) if one.command.startswith(str(program))]


def starting(crew: Crew, directory: Path) -> list[Seen]:
    """Launcher processes at their last step, the exec: they are in the worker's directory."""
    found = [one for one in marked(crew.mark, {}) if "launch_program" in one.command]
    return [one for one in found if _cwd(one.pid) == str(directory)]


def _cwd(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""


def test_a_start_that_hangs_ends_with_its_daemon(tmp_path: Path) -> None:
    """Its file is on a file system that hangs: when that goes on, the worker runs once."""
    program = tmp_path / "program"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_LEASE, str(program), str(tmp_path / "held")]
    )
    worker = {"command": [str(program), "100000"], "cwd": str(tmp_path), "agent": "none"}
    try:
        wait_for((tmp_path / "held").exists, what="the lease is held")
        with NoCgroups({"w": {**worker, "backend": "cpu"}}) as crew:
            wait_for(lambda: starting(crew, tmp_path), what="its exec waits")
            first = starting(crew, tmp_path)[0].identity
            crew.kill()
            crew.start()
            wait_for(lambda: not lives_on(*first), what="the start of the killed daemon is ended")
            holder.kill()
            holder.wait()
            crew.ready("w")
            assert [one.pid for one in running(crew, program)] == [crew.status()["w"].pid]
    finally:
        holder.kill()
        holder.wait()
