"""The daemon is killed while a worker, or a command of it, is being started."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import processes
from support.crew import Crew, shell
from support.mounts import without_cgroups
from support.process_world import HOLD_LEASE
from support.truth import Seen, lives_on, marked, stat_of
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


def commands(crew: Crew, mark: str) -> list[Seen]:
    return [one for one in marked(crew.mark, {}) if one.command == f"sleep {mark}"]


def both(crew: Crew) -> list[Seen]:
    """The two processes of the command that hangs; [] until there are both."""
    found = [commands(crew, name) for name in ("100001", "100002")]
    return found[0] + found[1] if all(found) else []


@pytest.mark.parametrize("what", ["pre_start", "ready", "stop"])
def test_a_short_command_that_hangs_ends_with_its_daemon(what: str) -> None:
    """It is never beside the same command of the next daemon, and nothing of it is left. What a
    command that had ended has left running is left alone, and carries the same marks."""
    line = "trap '' TERM HUP; setsid sleep 100001 & sleep 100002; :"
    hangs = {"command": ["/bin/sh", "-c", line], "timeout": "60s"}
    leaves = {"command": ["/bin/sh", "-c", "setsid sleep 100003 & exit 0"], "timeout": "60s"}
    sections = {"pre_start": leaves, what: hangs, "backend": "cpu"}
    with Crew({"w": shell("exec sleep 100000", **sections)}) as crew:
        if what == "stop":
            crew.ready()
            crew.cli("stop", "w", "--no-wait", "--config", str(crew.config))
        wait_for(lambda: both(crew), what="it hangs")
        before = both(crew)
        spared = commands(crew, "100003")
        crew.kill()
        crew.start()
        wait_for(lambda: both(crew), what="the next daemon runs it again")
        assert not [one for one in before if lives_on(*one.identity)]
        assert len(both(crew)) == 2
        assert all(lives_on(*one.identity) for one in spared)
        if what == "stop":
            crew.kill()  # else this waits until the stop command has taken its minute
        else:
            crew.terminate()
            wait_for(lambda: not commands(crew, "100002"), what="it ends with its daemon")
            assert not commands(crew, "100001")
            crew.kill()
        processes.end(crew.left())


def living_in(directory: Path) -> list[int]:
    """Whoever works in there, whatever is left of its environment."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    return [pid for pid in pids if _cwd(pid) == str(directory) and stat_of(pid) is not None]


def test_one_with_no_environment_left_is_found_though_its_pid_was_never_noted(
    tmp_path: Path,
) -> None:
    """The daemon saw nothing of it after it had asked for its exec, and there is no control
    group."""
    program = tmp_path / "program"
    shutil.copy(shutil.which("env") or "/usr/bin/env", program)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD_LEASE, str(program), str(tmp_path / "held")]
    )
    home = tmp_path / "home"
    home.mkdir()
    command = [str(program), "-i", "/bin/sleep", "100000"]
    worker = {"command": command, "cwd": str(home), "agent": "none", "backend": "cpu"}
    try:
        wait_for((tmp_path / "held").exists, what="the lease is held")
        with NoCgroups({"w": worker}) as crew:
            wait_for(lambda: starting(crew, home), what="its exec waits")
            first = starting(crew, home)[0]
            os.kill(crew.pid, signal.SIGSTOP)
            holder.kill()
            holder.wait()
            wait_for(lambda: not marked_as(first), what="it runs without environment")
            crew.kill()
            crew.start()
            crew.ready("w")
            assert living_in(home) == [first.pid] == [crew.status()["w"].pid]
            crew.stop()
            assert living_in(home) == []
    finally:
        holder.kill()
        holder.wait()
        for pid in living_in(home):
            os.kill(pid, signal.SIGKILL)


def marked_as(process: Seen) -> bytes:
    """What is left of its environment."""
    return Path(f"/proc/{process.pid}/environ").read_bytes()
