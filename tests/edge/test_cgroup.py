"""Control groups of the real kernel, and what is understood of those that cannot be made here."""

from __future__ import annotations

import asyncio
import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from stepwarden.clock import SystemClock
from stepwarden.edge import cgroup_mounts
from stepwarden.edge.cgroup import (
    Cgroup,
    at_control_group,
    is_ours,
    make_cgroup,
    make_home,
    own_cgroup,
    remove_home,
)
from support.cgroups import cgroup

CLOCK = SystemClock()


@contextmanager
def sleeper(group: Cgroup) -> Iterator[subprocess.Popen[bytes]]:
    """A process in this group, which is reaped at the end."""
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            group.add(process.pid)
            yield process
        finally:
            process.kill()


def test_who_is_in_it_and_below() -> None:
    with cgroup() as top:
        below = make_cgroup(top.path, "life")
        assert below is not None
        assert make_cgroup(top.path, "life") is None, "a group of that name is there already"
        assert not top.populated
        with sleeper(top) as first, sleeper(below) as second:
            assert top.processes() == {first.pid, second.pid}
            assert below.processes() == {second.pid}
            assert top.populated
            assert not top.remove(), "a group with a process in it stays"
            assert below.kill()
            assert second.wait(10) == -9
            assert (top.processes(), below.populated) == ({first.pid}, False)
        assert top.remove()
        assert not top.path.exists()


def test_a_zombie_is_nobody() -> None:
    """It cannot run any more and holds nothing, so it must not hold up a restart."""
    with cgroup() as group, sleeper(group) as process:
        assert group.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert (group.populated, group.processes()) == (False, frozenset())
        assert group.remove()


def test_a_group_that_is_gone_is_empty() -> None:
    own = own_cgroup() or Path("/sys/fs/cgroup")
    gone = Cgroup(own / f"nobody-{uuid.uuid4().hex}")
    assert (gone.populated, gone.processes()) == (False, frozenset())
    assert not gone.kill()
    assert gone.remove()
    assert gone.oom_kills() is None


def test_the_end_of_the_last_process_is_awaited() -> None:
    with cgroup() as group, sleeper(group) as process:

        async def story() -> None:
            assert not await group.until_empty(0.05)
            assert not await group.until_empty(-1.0), "a limit that has passed is no endless wait"
            before = len(os.listdir("/proc/self/fd"))
            asyncio.get_running_loop().call_later(0.05, process.kill)
            began = CLOCK.monotonic()
            assert await group.until_empty(60.0)
            assert CLOCK.monotonic() - began < 30.0, "nobody told us"
            assert await group.until_empty(None)
            assert len(os.listdir("/proc/self/fd")) == before

        asyncio.run(story())


def test_in_doubt_somebody_is_in_there(tmp_path: Path) -> None:
    (tmp_path / "cgroup.events").mkdir()  # cannot be read, even by root
    assert Cgroup(tmp_path).populated


def test_out_of_memory_is_counted_where_a_controller_counts(tmp_path: Path) -> None:
    group = Cgroup(tmp_path)
    assert group.oom_kills() is None
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\n")
    assert group.oom_kills() == 2


def test_groups_are_made_below_our_own_beside_ourselves() -> None:
    """The kernel's rule against inner processes concerns groups that hand controllers down."""
    own = own_cgroup()
    with cgroup() as ours:
        assert own is not None
        ours.add(os.getpid())
        try:
            assert own_cgroup() == ours.path
            home = make_home()
            if not is_ours(ours.path):
                assert home is None
                return
            assert home == ours.path / "workers"
            assert make_home() == home
            life = make_cgroup(home, "w.1.abc")
            assert life is not None
            with sleeper(life) as process:
                assert life.processes() == {process.pid}
                assert not remove_home(home)
            assert life.remove()
            assert remove_home(home)
            assert remove_home(home)
        finally:
            (own / "cgroup.procs").write_text(str(os.getpid()))


@pytest.mark.skipif(os.geteuid() != 0, reason="all that root could write is not root's to use")
def test_where_systemd_rules_root_needs_its_mark() -> None:
    with cgroup() as group:
        assert is_ours(group.path, systemd_runs=False)
        assert not is_ours(group.path, systemd_runs=True)
        try:
            os.setxattr(group.path, "trusted.delegate", b"1")
        except OSError as error:
            pytest.skip(f"this kernel takes no mark: {error.strerror}")
        assert is_ours(group.path, systemd_runs=True)
        below = make_cgroup(group.path, "supervisor")
        assert below is not None
        assert is_ours(below.path, systemd_runs=True), "DelegateSubgroup= of the unit"


MOUNTS = """\
24 30 0:22 / /sys/fs/cgroup rw,nosuid - tmpfs tmpfs rw
25 24 0:23 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
26 24 0:24 {root} {top} rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate
"""


@pytest.mark.parametrize(
    ("root", "own", "found"),
    [
        ("/", "0::/", "."),
        ("/", "1:name=systemd:/x\n0::/a/b", "a/b"),
        ("/pod", "0::/pod/a/b", "a/b"),
        ("/pod", "0::/other", None),
        ("/", "0::/../outside", None),
        ("/", "1:name=systemd:/only/version/one", None),
        ("/", "", None),
    ],
)
def test_our_own_group_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: str, own: str, found: str | None
) -> None:
    for name in ("a/b", "outside"):
        (tmp_path / name).mkdir(parents=True)
    texts = {
        "/proc/self/cgroup": own,
        "/proc/self/mountinfo": MOUNTS.format(root=root, top=tmp_path),
    }
    monkeypatch.setattr(cgroup_mounts, "lines", lambda path: texts[path].splitlines())
    assert own_cgroup() == (None if found is None else tmp_path / found)


def test_a_units_group_is_found_by_systemds_name_for_it() -> None:
    with cgroup() as group:
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            if " - cgroup2 " in line:
                top = line.split()[4]
                found = at_control_group(f"/{group.path.relative_to(top)}")
                assert found is not None
                assert found.path == group.path
                break
    assert at_control_group("") is None
    assert at_control_group(f"/nobody-{uuid.uuid4().hex}.service") is None
