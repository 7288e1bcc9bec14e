"""One daemon per state directory, whatever that directory can still take."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from stepwarden.edge.instance_lock import InstanceLock
from stepwarden.errors import AlreadyRunningError, RefusedError
from support.mounts import may_mount

TWICE = """\
import sys
from pathlib import Path
from stepwarden.edge.instance_lock import InstanceLock
from stepwarden.errors import AlreadyRunningError
one = InstanceLock(Path(sys.argv[1]))
try:
    InstanceLock(Path(sys.argv[1]))
except AlreadyRunningError as error:
    print(error)
one.release()
InstanceLock(Path(sys.argv[1])).release()
"""
REMOUNT = """\
import subprocess
subprocess.run(["mount", "-o", "remount,rw", sys.argv[1]], check=True)
"""
AGAIN = TWICE.replace("try:", f"{REMOUNT}try:")
FILL = 'head -c 1M /dev/zero > "$1/fill" 2>/dev/null; true'


def test_one_at_a_time(tmp_path: Path) -> None:
    lock = InstanceLock(tmp_path / "state")
    with pytest.raises(AlreadyRunningError, match=f"pid {os.getpid()}"):
        InstanceLock(tmp_path / "state")
    lock.release()
    InstanceLock(tmp_path / "state").release()


def test_the_lock_holds_though_somebody_takes_its_file_away(tmp_path: Path) -> None:
    lock = InstanceLock(tmp_path / "state")
    (tmp_path / "state" / "lock").unlink()
    with pytest.raises(AlreadyRunningError, match="one daemon per state directory"):
        InstanceLock(tmp_path / "state")
    lock.release()
    InstanceLock(tmp_path / "state").release()


def test_a_refused_lock_keeps_nothing_open(tmp_path: Path) -> None:
    lock = InstanceLock(tmp_path / "state")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(AlreadyRunningError):
        InstanceLock(tmp_path / "state")
    (tmp_path / "file").touch()
    with pytest.raises(RefusedError):
        InstanceLock(tmp_path / "file")
    assert len(os.listdir("/proc/self/fd")) == before
    lock.release()
    assert len(os.listdir("/proc/self/fd")) == before - 2


@pytest.mark.skipif(not may_mount(), reason="mounting is refused here")
def test_the_lock_of_a_read_only_directory_holds_when_it_takes_files_again(tmp_path: Path) -> None:
    script = 'mount -t tmpfs -o ro tmpfs "$1" && shift && exec "$@"'
    command = ["unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", str(tmp_path)]
    program = [sys.executable, "-c", AGAIN, str(tmp_path)]
    done = subprocess.run([*command, *program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "one daemon per state directory" in done.stdout


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    with pytest.raises(RefusedError, match="a file is in the way"):
        InstanceLock(tmp_path / "state")


@pytest.mark.skipif(not may_mount(), reason="mounting is refused here")
@pytest.mark.parametrize("before", [":", 'touch "$1/lock"', FILL, f'touch "$1/lock"; {FILL}'])
@pytest.mark.parametrize("after", [":", 'mount -o remount,ro "$1"'])
def test_o_sysd_3_a_directory_that_takes_nothing_is_locked_too(
    tmp_path: Path, before: str, after: str
) -> None:
    """Read-only, or full, with and without a file of an earlier daemon."""
    script = f'mount -t tmpfs -o size=64k tmpfs "$1" && {{ {before}; }} && {after} && shift'
    command = ["unshare", "-m", "--propagation", "private", "sh", "-c", f'{script} && exec "$@"']
    program = [sys.executable, "-c", TWICE, str(tmp_path)]
    done = subprocess.run(
        [*command, "sh", str(tmp_path), *program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "one daemon per state directory" in done.stdout
