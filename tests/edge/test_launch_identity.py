"""Users, groups, umask, nice, limits and cgroups of a start; what is missing where it fails."""

from __future__ import annotations

import asyncio
import ctypes
import os
import pwd
import re
import resource
import signal
import threading
import uuid
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from stepwarden.core.evidence import Exit
from stepwarden.edge.launch_spec import LIMITS, without_our_user
from stepwarden.edge.launcher import Launcher, LaunchSpec, SpawnFailed
from support.process_world import BASE_ENV, PATIENCE, run, until, world
from support.waiting import wait_for

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may become another user")

NUMBER = 54321  # no entry on any host that we know
PR_CAPBSET_DROP = 24
CAPABILITIES = {"DAC_OVERRIDE": 1, "SETGID": 6, "SETUID": 7, "SYS_NICE": 23, "SYS_RESOURCE": 24}
ALL = CAPABILITIES.values()


def _status(text: str, field: str) -> list[str]:
    found = re.search(rf"^{field}:\s*(.*)$", text, re.MULTILINE)
    assert found is not None, text
    return found[1].split()


def _told(tmp_path: Path, script: str, env: dict[str, str] | None = None, **more: Any) -> str:
    """What a shell script prints when it is started like this."""
    out = tmp_path / f"out-{uuid.uuid4().hex}"

    async def story() -> None:
        async with world() as here:
            spec = LaunchSpec(
                ["/bin/sh", "-c", script],
                env=BASE_ENV if env is None else env,
                stdout_path=str(out),
                **more,
            )
            process = await here.start(spec)
            assert await here.exit_of(process) == Exit(code=0), out.read_text()

    run(story())
    return out.read_text()


@needs_root
def test_a_user_by_name_brings_its_groups_and_its_names(tmp_path: Path) -> None:
    entry = pwd.getpwnam("nobody")
    told = _told(tmp_path, "cat /proc/self/status; env", user="nobody", cwd="/")
    assert _status(told, "Uid") == [str(entry.pw_uid)] * 4
    assert _status(told, "Gid") == [str(entry.pw_gid)] * 4
    expected = set(os.getgrouplist("nobody", entry.pw_gid))
    assert {int(gid) for gid in _status(told, "Groups")} == expected
    assert int(_status(told, "CapEff")[0], 16) == int(_status(told, "CapPrm")[0], 16) == 0
    variables = told.splitlines()
    assert f"HOME={entry.pw_dir}" in variables
    assert "USER=nobody" in variables
    assert "LOGNAME=nobody" in variables


@needs_root
def test_what_the_environment_says_stays_and_ours_is_taken_out(tmp_path: Path) -> None:
    ours = without_our_user({**BASE_ENV, "HOME": "/root", "USER": "root", "SHELL": "/bin/x"})
    assert ours == BASE_ENV
    told = _told(tmp_path, "env", {**ours, "HOME": "/elsewhere"}, user="nobody", cwd="/")
    assert "HOME=/elsewhere" in told.splitlines()
    assert "USER=nobody" in told.splitlines()


@needs_root
def test_a_user_and_a_group_by_number(tmp_path: Path) -> None:
    told = _told(tmp_path, "cat /proc/self/status; env", user=str(NUMBER), group="77", cwd="/")
    assert _status(told, "Uid") == [str(NUMBER)] * 4
    assert _status(told, "Gid") == ["77"] * 4
    assert _status(told, "Groups") == ["77"]
    assert "USER=" not in told


@needs_root
def test_a_group_alone_leaves_the_user(tmp_path: Path) -> None:
    told = _told(tmp_path, "cat /proc/self/status", group="77")
    assert _status(told, "Uid") == ["0"] * 4
    assert _status(told, "Gid") == ["77"] * 4


def test_the_user_that_we_are_needs_no_privilege() -> None:
    user, group = str(os.getuid()), str(os.getgid())

    for spec in (
        LaunchSpec(["/bin/true"], BASE_ENV, user=user),
        LaunchSpec(["/bin/true"], BASE_ENV, user=user, group=group),
    ):
        assert _told_without(ALL, spec) == ""


@needs_root
def test_the_working_directory_is_entered_as_the_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    spec = LaunchSpec(["/bin/true"], BASE_ENV, cwd=str(tmp_path), user="nobody")
    told = _failure(spec)
    assert "working directory" in told
    assert str(tmp_path) in told
    assert "EACCES" in told


@needs_root
def test_paths_that_go_along_belong_to_the_user(tmp_path: Path) -> None:
    page_dir, link = tmp_path / "pages", tmp_path / "link"
    page_dir.mkdir(mode=0o700)
    link.symlink_to(tmp_path)
    owned = [str(page_dir), str(link)]
    _told(tmp_path, "true", user=str(NUMBER), group="77", cwd="/", owned=owned)
    assert (page_dir.stat().st_uid, page_dir.stat().st_gid) == (NUMBER, 77)
    assert tmp_path.stat().st_uid == 0
    missing = LaunchSpec(["/bin/true"], BASE_ENV, user="nobody", owned=[str(tmp_path / "none")])
    assert "owner of" in _failure(missing)


@needs_root
def test_a_captured_pipe_can_be_opened_anew_by_its_user() -> None:
    async def story() -> None:
        reader, writer = os.pipe()
        async with world() as here:
            spec = LaunchSpec(
                ["/bin/sh", "-c", "echo a; echo b > /proc/self/fd/2"],
                BASE_ENV,
                user="nobody",
                cwd="/",
                output_fd=writer,
            )
            assert await here.exit_of(await here.start(spec)) == Exit(code=0)
        os.close(writer)
        assert os.read(reader, 100) == b"a\nb\n"
        assert os.read(reader, 100) == b""
        os.close(reader)

    run(story())


def test_descriptors_that_go_along_are_the_only_ones() -> None:
    async def story() -> None:
        inner, outer = os.pipe()
        reader, writer = os.pipe()
        os.write(outer, b"said by us\n")
        os.close(outer)
        async with world() as here:
            code = "cat; ls /proc/self/fd; readlink /proc/self/fd/1 /proc/self/fd/2 >&2"
            spec = LaunchSpec(["/bin/sh", "-c", code], BASE_ENV, input_fd=inner, output_fd=writer)
            assert await here.exit_of(await here.start(spec)) == Exit(code=0)
        pipe = os.readlink(f"/proc/self/fd/{writer}")
        for descriptor in (inner, writer):
            os.close(descriptor)
        lines = os.read(reader, 4096).decode().splitlines()
        os.close(reader)
        assert lines[0] == "said by us"
        assert lines[1:4] == ["0", "1", "2"]
        assert lines[4:] in (["3", pipe, pipe], [pipe, pipe])  # 3 is the listing's own

    run(story())


def test_umask_and_nice(tmp_path: Path) -> None:
    told = _told(tmp_path, "umask; cut -d' ' -f19 /proc/self/stat", umask=0o027, nice=7)
    assert told.split() == ["0027", "7"]


def test_limits_are_soft_and_hard_and_win_over_the_number_of_descriptors(tmp_path: Path) -> None:
    limits = {"nofile": 300, "core": 0, "memlock": 65536, "stack": 1 << 20, "fsize": 1 << 20}
    limits |= {"nproc": 500, "as": 1 << 30}
    assert set(limits) == set(LIMITS)
    told = _told(tmp_path, "cat /proc/self/limits", limits=limits, descriptors=200)
    for row, expected in {
        "Max open files": 300,
        "Max core file size": 0,
        "Max locked memory": 65536,
        "Max stack size": 1 << 20,
        "Max file size": 1 << 20,
        "Max processes": 500,
        "Max address space": 1 << 30,
    }.items():
        assert _limit(told, row) == [str(expected)] * 2


def _may_raise_limits() -> bool:
    capabilities = int(_status(Path("/proc/self/status").read_text(), "CapEff")[0], 16)
    return bool(capabilities >> CAPABILITIES["SYS_RESOURCE"] & 1)


@pytest.mark.skipif(not _may_raise_limits(), reason="needs CAP_SYS_RESOURCE")
def test_unlimited_means_as_much_as_the_kernel_gives(tmp_path: Path) -> None:
    limits = {"memlock": None, "nofile": None, "core": None}
    told = _told(
        tmp_path, "ulimit -n; ulimit -c; grep 'locked memory' /proc/self/limits", limits=limits
    )
    ceiling = Path("/proc/sys/fs/nr_open").read_text().strip()
    assert told.split()[0] == ceiling
    for row in ("Max locked memory", "Max core file size"):
        assert _limit(told, row) == ["unlimited", "unlimited"]


def _limit(told: str, row: str) -> list[str]:
    """Soft and hard, as /proc/self/limits shows them."""
    (line,) = (line for line in told.splitlines() if line.startswith(row))
    return line.removeprefix(row).split()[:2]


def _cgroup_root() -> Path | None:
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, *_ = line.split(" ")
        if kind == "cgroup2" and os.access(where, os.W_OK) and os.getuid() == 0:
            return Path(where)
    return None


@pytest.fixture
def cgroup() -> Iterator[Path]:
    root = _cgroup_root()
    if root is None:
        pytest.skip("no cgroup v2 that we may write to")
    made = root / f"stepwarden-test-{uuid.uuid4().hex}"
    made.mkdir()
    yield made
    wait_for(lambda: _removed(made))


def _removed(cgroup: Path) -> bool:
    # Busy for a moment still after its last process has ended.
    with suppress(OSError):
        cgroup.rmdir()
    return not cgroup.exists()


def test_a_worker_is_in_its_cgroup_from_the_start(tmp_path: Path, cgroup: Path) -> None:
    told = _told(tmp_path, "cat /proc/self/cgroup", cgroup=str(cgroup), user="nobody", cwd="/")
    assert f"0::/{cgroup.name}" in told.splitlines()
    # The launcher process that failed is not left in there.
    _failure(LaunchSpec(["/nowhere"], BASE_ENV, cgroup=str(cgroup)))


def _failure(spec: LaunchSpec) -> str:
    told = ""

    async def story() -> None:
        nonlocal told
        async with world() as here:
            with pytest.raises(SpawnFailed) as caught:
                await here.start(spec)
            told = str(caught.value)

    run(story())
    assert "\n" not in told
    return told


def test_o_grpc_3_failures_say_what_and_where(tmp_path: Path) -> None:
    true = ["/bin/true"]
    cases = [
        (LaunchSpec(true, BASE_ENV, user="no-such-user"), ["'no-such-user'", "no such user"]),
        (LaunchSpec(true, BASE_ENV, group="no-such-group"), ["'no-such-group'", "no such group"]),
        (LaunchSpec(true, BASE_ENV, user=str(NUMBER)), [str(NUMBER), "give the group too"]),
        (LaunchSpec(true, BASE_ENV, user=str(2**32 - 1)), ["too large"]),
        (LaunchSpec(true, BASE_ENV, group=str(2**70)), ["too large"]),
        (LaunchSpec(true, BASE_ENV, user="a\0b"), ["no such user"]),
        (LaunchSpec(true, BASE_ENV, cgroup="/nowhere/c"), ["cgroup '/nowhere/c'", "ENOENT"]),
        (LaunchSpec(true, BASE_ENV, cgroup=str(tmp_path)), ["cgroup", str(tmp_path), "ENOENT"]),
        (LaunchSpec(true, BASE_ENV, limits={"wishes": 3}), ["'wishes'"]),
        (LaunchSpec(true, BASE_ENV, limits={"nofile": 1 << 40}), ["nofile", "nr_open", "EPERM"]),
    ]

    async def story() -> None:
        async with world() as here:
            for spec, words in cases:
                with pytest.raises(SpawnFailed) as caught:
                    await here.start(spec)
                assert "\n" not in str(caught.value)
                for word in words:
                    assert word in str(caught.value)

    run(story())
    assert not (tmp_path / "cgroup.procs").exists()


def _told_without(dropped: Collection[int], spec: LaunchSpec) -> str:
    """How a start fails for a supervisor without privileges; "" where it does not.

    A thread gives them up, and the programs that it starts cannot have them back.
    """
    told: list[str] = []

    async def start() -> None:
        launcher = Launcher()
        await launcher.start()
        spare = launcher._spare
        assert spare is not None
        pid = spare.process.pid
        try:
            await launcher.spawn(spec, PATIENCE)
            told.append("")
        except SpawnFailed as error:
            told.append(str(error))
        finally:
            await launcher.close()
            await until(lambda: _reaped(pid))

    def unprivileged() -> None:
        libc = ctypes.CDLL(None)
        if os.getuid() == 0:
            for number in dropped:
                assert libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0) == 0
        asyncio.run(start())

    thread = threading.Thread(target=unprivileged)
    thread.start()
    thread.join()
    assert told
    return told[0]


def _reaped(pid: int) -> bool:
    with suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return True


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"user": "nobody"}, ["'nobody'", "EPERM", "root or CAP_SETGID"]),
        ({"group": "77"}, ["77", "EPERM", "root or CAP_SETGID"]),
        ({"nice": -5}, ["nice", "-5", "root or CAP_SYS_NICE"]),
        ({"limits": {"nofile": None}}, ["nofile", "unlimited", "CAP_SYS_RESOURCE"]),
    ],
)
def test_without_privileges_a_start_says_which_one_it_takes(
    more: dict[str, Any], words: list[str]
) -> None:
    told = _told_without(ALL, LaunchSpec(["/bin/true"], BASE_ENV, **more))
    for word in words:
        assert word in told


def test_a_limit_below_the_hard_one_needs_no_privilege() -> None:
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] >= 64
    assert _told_without(ALL, LaunchSpec(["/bin/true"], BASE_ENV, limits={"nofile": 64})) == ""


def test_a_limit_that_is_reached_says_at_what(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    async def story() -> None:
        async with world() as here:
            spec = LaunchSpec(["/bin/true"], BASE_ENV, stdout_path=str(tmp_path / "pipe"))
            with pytest.raises(SpawnFailed, match="output file was being opened when"):
                await here.start(spec, 1.0)

    run(story())


def test_o_proc_5_signals_are_default_whatever_ours_are(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    old = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])
    try:
        told = _told(tmp_path, "exec cat /proc/self/status")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)
        signal.signal(signal.SIGPIPE, before)
    blocked, ignored = (int(_status(told, field)[0], 16) for field in ("SigBlk", "SigIgn"))
    assert blocked == 0
    # 32 and 33 are the C library's own; its posix_spawn leaves them ignored. Harmless.
    assert ignored & ~(3 << 31) == 0
