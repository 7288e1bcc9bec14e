"""Control groups for tests, below the one that the tests themselves run in."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from stepwarden.edge.cgroup import Cgroup, own_cgroup

from support.waiting import wait_for

FREEZERS = (Path("/sys/fs/cgroup/freezer"), Path("/sys/fs/cgroup/cpu,freezer"))
CPU = Path("/sys/fs/cgroup/cpu")
MEMORY = Path("/sys/fs/cgroup/memory")
PATIENCE = 10.0


@contextmanager
def cgroup() -> Iterator[Cgroup]:
    """A group of its own; skips the test where none can be made."""
    own = own_cgroup()
    if own is None:
        pytest.skip("no cgroup version 2 here")
    made = Cgroup(own / f"test-{uuid.uuid4().hex}")
    try:
        made.path.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made below {own}: {error.strerror}")
    try:
        yield made
    finally:
        made.kill()
        remove(made)


@contextmanager
def frozen(*pids: int) -> Iterator[None]:
    """Within the block nothing ends these processes, KILL neither: the freezer of version 1."""
    top = next((path for path in FREEZERS if os.access(path, os.W_OK)), None)
    if top is None:
        pytest.skip("no freezer of cgroup version 1 to write to")
    group = top / f"test-{uuid.uuid4().hex}"
    group.mkdir()
    try:
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
        (group / "freezer.state").write_text("FROZEN")
        wait_for_text(group / "freezer.state", "FROZEN")
        yield
    finally:
        (group / "freezer.state").write_text("THAWED")
        for pid in pids:
            with suppress(OSError):
                (top / "cgroup.procs").write_text(str(pid))
        remove(Cgroup(group))


@contextmanager
def short_of_memory(limit: int, *pids: int) -> Iterator[Path]:
    """Within the block these, and whoever they start, have so many bytes: version 1's controller.

    Yields the group. The kernel kills one of them when they want more.
    """
    if not os.access(MEMORY, os.W_OK):
        pytest.skip("no memory controller of cgroup version 1 to write to")
    group = MEMORY / f"test-{uuid.uuid4().hex}"
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit))
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
        yield group
    finally:
        for member in (group / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (MEMORY / "cgroup.procs").write_text(member)
        remove(Cgroup(group))


@contextmanager
def short_of_cpu(percent: int, *pids: int) -> Iterator[Path]:
    """Within the block these share so much of one core: the quota of version 1's controller."""
    if not os.access(CPU, os.W_OK):
        pytest.skip("no cpu controller of cgroup version 1 to write to")
    group = CPU / f"test-{uuid.uuid4().hex}"
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text(str(1000 * percent))
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
        yield group
    finally:
        for member in (group / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (CPU / "cgroup.procs").write_text(member)
        remove(Cgroup(group))


def wait_for_text(path: Path, text: str) -> None:
    """Wait until the file says so."""
    wait_for(lambda: path.read_text().strip() == text, PATIENCE, f"{path} is {text}")


def remove(group: Cgroup) -> None:
    """Remove a group once its processes are gone."""
    wait_for(group.remove, PATIENCE, f"{group} is empty")


@contextmanager
def quota(pid: int, share: float) -> Iterator[None]:
    """Within the block this process gets `share` of one CPU: a quota of version 1."""
    if not os.access(CPU / "cgroup.procs", os.W_OK):
        pytest.skip("no cpu controller of cgroup version 1 to write to")
    group = CPU / f"test-{uuid.uuid4().hex}"
    group.mkdir()
    try:
        (group / "cpu.cfs_period_us").write_text("100000")
        (group / "cpu.cfs_quota_us").write_text(str(int(share * 100_000)))
        (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for line in (group / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (CPU / "cgroup.procs").write_text(line)
        remove(Cgroup(group))
