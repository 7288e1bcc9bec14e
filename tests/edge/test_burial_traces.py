"""Burying what forking, exec, setsid and a blanked environment have cut loose from its main."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import uuid
from pathlib import Path

from stepwarden.clock import SystemClock
from stepwarden.core.evidence import Exit, ProcessId
from stepwarden.edge.burial import bury
from stepwarden.edge.cgroup import Cgroup
from stepwarden.edge.family import Family
from stepwarden.edge.launch_spec import LaunchSpec
from stepwarden.edge.process_probe import alive, identify
from stepwarden.edge.process_table import ProcessTable
from stepwarden.edge.signals import send
from support.cgroups import cgroup, frozen, wait_for_text
from support.process_world import BASE_ENV, PYTHON, World, run, text_of, until, world

CLOCK = SystemClock()
MARK = f"w-{uuid.uuid4().hex}"  # nobody else on this host carries it
SLEEP = "import time; time.sleep(600)"

# Joins the control group of argv[3], as the launcher does. Its child overwrites its arguments and
# environment, which are one area, with a title, and waits for argv[2]; then it double-forks.
BLANKED = """
import ctypes, os, sys, time
path, go, group, *own_session = sys.argv[1:]
if group:
    open(group + "/cgroup.procs", "w").write("0")
if os.fork():
    time.sleep(600)
fields = open("/proc/self/stat").read().rpartition(")")[2].split()
start, end = int(fields[45]), int(fields[48])   # arg_start, env_end
title = b"engine core"
ctypes.memset(start, 0, end - start)
ctypes.memmove(start, title, len(title))
open(path + ".core", "w").write(f"{os.getpid()}\\n")
while not os.path.exists(go): time.sleep(0.01)
os.setsid()
if os.fork() == 0:
    if os.fork() == 0:
        if own_session:
            os.setsid()
        open(path + ".worker", "w").write(f"{os.getpid()}\\n")
        time.sleep(600)
    os._exit(0)
os.wait()
time.sleep(600)
"""


class Tree:
    """One BLANKED tree in the making: main and core, later the worker."""

    def __init__(self, here: World, directory: Path, main: ProcessId, core: ProcessId) -> None:
        self.here = here
        self.directory = directory
        self.main = main
        self.core = core

    @classmethod
    async def start(cls, here: World, directory: Path, group: str = "", *options: str) -> Tree:
        """Main and core run; the core's environment is overwritten."""
        ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)  # init takes the orphans, as of a dead daemon
        words = (str(directory / "pid"), str(directory / "go"), group, *options)
        main = await here.python(BLANKED, *words, STEPWARDEN_INCARNATION=MARK)
        core = await process_in(directory / "pid.core")
        for name in ("environ", "cmdline"):
            assert MARK.encode() not in Path(f"/proc/{core.pid}/{name}").read_bytes()
        return cls(here, directory, main, core)

    async def cut_loose(self) -> ProcessId:
        """Main ends, the core leaves its session and double-forks; returns the worker."""
        send(self.main, signal.SIGKILL)
        await self.here.exit_of(self.main)
        (self.directory / "go").touch()
        worker = await process_in(self.directory / "pid.worker")
        await until(lambda: ProcessTable.scan().by_pid[worker.pid].ppid != self.core.pid)
        return worker


async def process_in(path: Path) -> ProcessId:
    process = identify(int(await text_of(path)))
    assert process is not None
    return process


async def bury_quietly(
    family: Family, told: list[str] | None = None, grace: float = 60.0
) -> frozenset[ProcessId]:
    sentences: list[str] = [] if told is None else told
    return await bury(family, grace, 10.0, CLOCK, sentences.append)


def test_a_blanked_tree_is_found_by_what_an_earlier_daemon_saw(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            tree = await Tree.start(here, tmp_path)
            journal: set[ProcessId] = set()
            first = Family(tree.main, MARK, on_seen=journal.update)
            first.observe(ProcessTable.scan())
            assert journal == {tree.core}
            del first  # the daemon dies here
            worker = await tree.cut_loose()
            # Nothing else ties them to it: without the journal they are strangers.
            assert await bury_quietly(Family(tree.main, MARK)) == frozenset()
            assert alive(tree.core)
            assert alive(worker)
            assert await bury_quietly(Family(tree.main, MARK, seen=journal)) == frozenset()
            assert not alive(tree.core)
            assert not alive(worker)

    run(story())


def test_a_blanked_tree_is_found_by_its_control_group(tmp_path: Path) -> None:
    """Even one that left the session that was known, while nobody looked."""

    async def story() -> None:
        async with world() as here:
            with cgroup() as group:
                unrelated = await here.python(SLEEP)
                tree = await Tree.start(here, tmp_path, str(group.path), "own session")
                worker = await tree.cut_loose()
                told: list[str] = []
                family = Family(tree.main, MARK, cgroup=group)
                assert await bury_quietly(family, told) == frozenset()
                assert not alive(tree.core)
                assert not alive(worker)
                assert alive(unrelated)
                assert told[0].startswith("SIGTERM sent to 2 processes")
                assert not group.path.exists()

    run(story())


BROOD = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
open(sys.argv[2] + "/cgroup.procs", "w").write("0")
open(sys.argv[1], "w").write("x\\n")
for _ in range(1000):
    if os.fork() == 0:
        os.setsid()
        time.sleep(0.1)
        os._exit(0)
    time.sleep(0.02)
"""


def test_a_brood_that_grows_meanwhile_is_killed_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            with cgroup() as group:
                main = await here.python(BROOD, str(tmp_path / "ready"), str(group.path))
                await text_of(tmp_path / "ready")
                told: list[str] = []
                family = Family(main, MARK, cgroup=group)
                assert await bury_quietly(family, told, grace=0.2) == frozenset()
                assert told.count("SIGKILL sent to its whole control group at once") == 1
                assert told[-1].startswith("every process is gone")
                assert not group.path.exists()

    run(story())


def test_who_is_barred_lives_on_in_the_control_group() -> None:
    """A process of ours that writes the worker's output, with every trace that there is."""

    async def story() -> None:
        async with world() as here:
            with cgroup() as group:
                writer = await here.python(SLEEP, STEPWARDEN_INCARNATION=MARK)
                main = await here.python(
                    "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
                )
                for process in (writer, main):
                    group.add(process.pid)
                family = Family(
                    main,
                    MARK,
                    barred=lambda: [writer.pid],
                    cgroup=group,
                    seen=[writer],
                )
                told: list[str] = []
                assert await bury_quietly(family, told, grace=0.2) == frozenset()
                assert not alive(main)
                assert alive(writer)
                assert not family.adopt(writer)
                assert not any(str(writer.pid) in line for line in told)
                assert told[-2] == f"its control group {group.path} stays: others are in it"

    run(story())


def test_a_control_group_that_we_stand_in_is_no_workers(tmp_path: Path) -> None:
    """A wrong note must not make members of everybody who was started as we were."""

    async def story() -> None:
        async with world() as here:
            main, stranger = await here.python(SLEEP), await here.python(SLEEP)
            (tmp_path / "cgroup.events").write_text("populated 1\n")
            (tmp_path / "cgroup.procs").write_text(f"{os.getpid()}\n{stranger.pid}\n")
            family = Family(main, MARK, cgroup=Cgroup(tmp_path))
            assert await bury_quietly(family) == frozenset()
            assert not alive(main)
            assert alive(stranger)
            assert not family.kill_cgroup()
            assert not (tmp_path / "cgroup.kill").exists()

    run(story())


def test_a_control_group_with_somebody_unseen_is_not_taken_for_empty(tmp_path: Path) -> None:
    """In a pid namespace the pids of those outside read as 0."""
    (tmp_path / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    (tmp_path / "cgroup.procs").write_text("0\n0\n")

    async def story() -> None:
        async with world() as here:
            main = await here.python(SLEEP)
            told: list[str] = []
            family = Family(main, MARK, cgroup=Cgroup(tmp_path))
            assert await bury(family, 0.1, 0.1, CLOCK, told.append) == {main}
            assert not alive(main)
            assert told[-2] == f"somebody who cannot be seen from here is left in {tmp_path}"

    run(story())


def test_a_frozen_control_group_goes_on_to_take_its_term() -> None:
    async def story() -> None:
        async with world() as here:
            with cgroup() as group:
                spec = LaunchSpec([*PYTHON, "-c", SLEEP], BASE_ENV, cgroup=str(group.path))
                main = await here.start(spec)
                assert group.processes() == {main.pid}
                (group.path / "cgroup.freeze").write_text("1")
                wait_for_text(group.path / "cgroup.events", "populated 1\nfrozen 1")
                told: list[str] = []
                assert await bury_quietly(Family(main, MARK, cgroup=group), told) == frozenset()
                assert await here.exit_of(main) == Exit(signal=signal.SIGTERM)
                assert f"its frozen control group {group.path} goes on" in told

    run(story())


def test_a_frozen_process_is_named_and_gone_when_it_thaws() -> None:
    """KILL has no effect on it, as on one that hangs in a driver."""

    async def story() -> None:
        async with world() as here:
            stuck, other = await here.python(SLEEP), await here.python(SLEEP)
            family, told = Family(stuck, MARK), list[str]()
            with frozen(stuck.pid):
                burying = asyncio.ensure_future(bury(family, 0.2, 1.0, CLOCK, told.append))
                assert await bury_quietly(Family(other, "other")) == frozenset()
                assert not burying.done(), "the other one was held up"
                assert await burying == {stuck}
                assert told[-1] == f"cannot be ended: 1 process: {stuck.pid}"
            assert await bury_quietly(family) == frozenset()
            assert not alive(stuck)

    run(story())


def test_members_are_told_once_and_the_dead_of_the_journal_are_nobody() -> None:
    async def story() -> None:
        async with world() as here:
            main = await here.python(SLEEP)
            other = await here.python(SLEEP)
            told: list[frozenset[ProcessId]] = []
            reused = ProcessId(other.pid, other.start_ticks + 1)
            family = Family(main, MARK, seen=[reused], on_seen=told.append)
            family.observe(ProcessTable.scan())
            assert family.known == {main}
            assert family.adopt(other)
            for _ in range(2):
                family.observe(ProcessTable.scan())
            assert told == [{other}]

    run(story())
