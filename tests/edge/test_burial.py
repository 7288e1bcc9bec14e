from __future__ import annotations

import asyncio
import ctypes
import fcntl
import os
import resource
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from stepwarden.clock import SystemClock
from stepwarden.core.evidence import Exit, ProcessId
from stepwarden.edge.burial import bury
from stepwarden.edge.family import Family
from stepwarden.edge.launcher import LaunchSpec
from stepwarden.edge.process_probe import alive, identify
from stepwarden.edge.process_table import ProcessTable
from stepwarden.edge.signals import send
from support.clocks import ShiftedClock
from support.process_world import BASE_ENV, PYTHON, World, run, text_of, until, world

CLOCK = SystemClock()
MARK = f"w-{uuid.uuid4().hex}"  # nobody else on this host carries it
TREE = Path(__file__).parents[1] / "support" / "tree_worker.py"
NAMES = ("main", "child_a", "child_b", "grandchild")
LIMIT = 60.0  # only a broken program takes so long
SLEEP = "import time; time.sleep(600)"


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """Within the block nothing can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def start_tree(here: World, directory: Path, *options: str) -> dict[str, ProcessId]:
    spec = LaunchSpec([*PYTHON, str(TREE), str(directory), *options], BASE_ENV)
    await here.start(spec)
    found = {}
    for name in NAMES:
        process = identify(int(await text_of(directory / f"{name}.pid")))
        assert process is not None
        found[name] = process
    return found


def lock_is_free(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


async def bury_quietly(family: Family, grace: float, told: list[str]) -> frozenset[ProcessId]:
    return await bury(family, grace, 10.0, CLOCK, told.append)


@pytest.mark.parametrize("killed_from_outside", [False, True])
def test_o_proc_1_the_whole_tree_goes(tmp_path: Path, killed_from_outside: bool) -> None:
    async def story() -> None:
        async with world() as here:
            unrelated = await here.python(SLEEP)
            tree = await start_tree(here, tmp_path, "stubborn")
            family = Family(tree["main"], MARK)
            family.observe(ProcessTable.scan())
            assert family.members(ProcessTable.scan()) == set(tree.values())
            if killed_from_outside:
                send(tree["main"], signal.SIGKILL)
                await here.exit_of(tree["main"])
            told: list[str] = []
            assert await bury_quietly(family, 0.5, told) == frozenset()
            assert not any(map(alive, tree.values()))
            assert all(lock_is_free(tmp_path / f"{name}.lock") for name in NAMES)
            assert alive(unrelated)
            assert told[0].startswith("SIGTERM sent to")
            assert any(line.startswith("SIGKILL") for line in told) != killed_from_outside
            assert told[-1].startswith("every process is gone")

    run(story())


def test_a_dead_single_process_is_confirmed_without_waiting() -> None:
    async def story() -> None:
        async with world() as here:
            process = await here.python(SLEEP)
            family = Family(process, MARK)
            send(process, signal.SIGKILL)
            await here.exit_of(process)
            told: list[str] = []
            # A grace far above the limit: a burial that waits it out fails by that.
            async with asyncio.timeout(LIMIT):
                assert await bury_quietly(family, 600.0, told) == frozenset()
            assert len(told) == 1

    run(story())


def test_stopped_processes_get_term_and_go_on() -> None:
    async def story() -> None:
        async with world() as here:
            process = await here.python(SLEEP)
            send(process, signal.SIGSTOP)
            await until(lambda: ProcessTable.scan().by_pid[process.pid].stopped)
            told: list[str] = []
            assert await bury_quietly(Family(process, MARK), 60.0, told) == frozenset()
            assert await here.exit_of(process) == Exit(signal=signal.SIGTERM)
            assert any(line.startswith("SIGCONT") for line in told)

    run(story())


DOUBLE_FORK = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(sys.argv[1], "w").write(f"{os.getpid()}\\n")
        time.sleep(600)
    os._exit(0)
os.wait()
if len(sys.argv) > 2:
    time.sleep(600)
"""


async def orphan_of(here: World, path: Path, *args: str) -> tuple[ProcessId, ProcessId]:
    """A main that double-forks: (main, the orphan, which is our child by now)."""
    main = await here.python(DOUBLE_FORK, str(path), *args, STEPWARDEN_INCARNATION=MARK)
    orphan = identify(int(await text_of(path)))
    assert orphan is not None
    await until(lambda: orphan in {e.process for e in ProcessTable.scan().children(os.getpid())})
    return main, orphan


def seen(family: Family) -> set[ProcessId]:
    """Whom it takes for a member now."""
    table = ProcessTable.scan()
    family.observe(table)
    return family.members(table)


def test_a_double_fork_is_found_by_its_marker_when_it_becomes_our_child(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            main, orphan = await orphan_of(here, tmp_path / "pid", "stay")
            family = Family(main, MARK)
            # Its environment is read in a thread: one of the next looks knows.
            await until(lambda: seen(family) == {main, orphan})
            other = Family(await here.python(SLEEP), "w-8")
            other.observe(ProcessTable.scan())
            assert other.members(ProcessTable.scan()) == {other.main}
            assert await bury_quietly(family, 5.0, []) == frozenset()
            assert not alive(orphan)

    run(story())


def test_an_orphan_is_buried_though_main_has_ended_unseen(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            main, orphan = await orphan_of(here, tmp_path / "pid")
            await here.exit_of(main)
            assert await bury_quietly(Family(main, MARK), 5.0, []) == frozenset()
            assert not alive(orphan)

    run(story())


def test_the_marker_is_found_where_orphans_are_not_ours(tmp_path: Path) -> None:
    """As a daemon finds it that is no subreaper, or one that came after the tree."""

    async def story() -> None:
        async with world() as here:
            ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)
            main = await here.python(
                DOUBLE_FORK, str(tmp_path / "pid"), STEPWARDEN_INCARNATION=MARK
            )
            await here.exit_of(main)
            orphan = identify(int(await text_of(tmp_path / "pid")))
            assert orphan is not None
            other = await here.python(SLEEP, STEPWARDEN_INCARNATION=MARK)
            family = Family(main, MARK, barred=lambda: [other.pid])
            family.observe(ProcessTable.scan())
            assert family.members(ProcessTable.scan()) == set()
            assert await bury_quietly(family, 5.0, []) == frozenset()
            assert not alive(orphan)
            assert alive(other)

    run(story())


BLANKED = """
import ctypes, mmap, os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        fields = open("/proc/self/stat").read().rpartition(")")[2].split()
        start, end = int(fields[47]), int(fields[48])   # env_start, env_end
        ctypes.memset(start, 0, end - start)
        if len(sys.argv) > 2:
            file = open(sys.argv[2], "r+b")
            page = mmap.mmap(file.fileno(), 4096)
        open(sys.argv[1], "w").write(f"{os.getpid()}\\n")
        time.sleep(600)
    os._exit(0)
os.wait()
if len(sys.argv) < 3:
    time.sleep(600)
"""


def test_a_blanked_environment_is_found_by_its_mapped_page(tmp_path: Path) -> None:
    """vLLM's engine core and workers overwrite their environment with a title."""

    async def story() -> None:
        async with world() as here:
            pages = tmp_path / "pages"
            pages.mkdir()
            (pages / "0.page").write_bytes(bytes(4096))
            main = await here.python(
                BLANKED, str(tmp_path / "pid"), str(pages / "0.page"), STEPWARDEN_INCARNATION=MARK
            )
            orphan = identify(int(await text_of(tmp_path / "pid")))
            assert orphan is not None
            assert MARK.encode() not in Path(f"/proc/{orphan.pid}/environ").read_bytes()
            # An operator who merely looks at the page is no member.
            with (pages / "0.page").open("rb"):
                reader = await here.python(
                    "import sys,time; f=open(sys.argv[1],'rb'); time.sleep(600)",
                    str(pages / "0.page"),
                )
                family = Family(main, MARK, pages)
                assert await bury_quietly(family, 5.0, []) == frozenset()
            assert not alive(orphan)
            assert alive(reader)

    run(story())


def test_what_the_page_reader_tells_is_a_member_with_its_children(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            main = await here.python(SLEEP)
            tree = await start_tree(here, tmp_path)
            family = Family(main, MARK, barred=lambda: [tree["child_a"].pid])
            assert family.adopt(tree["child_b"])
            assert not family.adopt(tree["child_a"])
            for pid in (os.getpid(), os.getppid(), 1):
                process = identify(pid)
                assert process is not None
                assert not family.adopt(process)
            family.observe(ProcessTable.scan())
            wanted = {main, tree["child_b"], tree["grandchild"]}
            assert family.members(ProcessTable.scan()) == wanted
            assert await bury_quietly(family, 5.0, []) == frozenset()
            assert alive(tree["main"])
            send(tree["child_a"], signal.SIGKILL)

    run(story())


FORKS_ON_TERM = """
import os, signal, sys, time
def again(*_):
    if os.fork() == 0:
        open(sys.argv[1], "a").write(f"{os.getpid()}\\n")
signal.signal(signal.SIGTERM, again)
open(sys.argv[1] + ".ready", "w").write("x\\n")
while True: time.sleep(600)
"""


def test_members_born_during_the_burial_go_too(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            process = await here.python(FORKS_ON_TERM, str(tmp_path / "pids"))
            await text_of(tmp_path / "pids.ready")
            clock = ShiftedClock()
            burial = asyncio.ensure_future(
                bury(Family(process, MARK), 1000.0, LIMIT, clock, lambda _: None)
            )
            await text_of(tmp_path / "pids")
            clock.ahead = 1000.0  # the grace is over
            assert await burial == frozenset()
            born = {int(pid) for pid in (tmp_path / "pids").read_text().split()}
            assert not [
                e for e in ProcessTable.scan().by_pid.values() if e.pid in born and not e.gone
            ]

    run(story())


def test_what_cannot_be_ended_is_returned_and_the_loop_runs_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Signals that do not arrive stand for a process that the kernel does not let go."""

    async def story() -> None:
        async with world() as here:
            process = await here.python(SLEEP)
            monkeypatch.setattr("stepwarden.edge.burial.send", lambda *_: False)
            turns = 0

            async def tick() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0.01)

            ticker = asyncio.create_task(tick())
            told: list[str] = []
            left = await bury(Family(process, MARK), 0.2, 0.2, CLOCK, told.append)
            ticker.cancel()
            assert left == frozenset({process})
            assert told == [f"cannot be ended: 1 process: {process.pid}"]
            assert turns >= 5

    run(story())


def test_out_of_descriptors_nobody_counts_as_gone() -> None:
    """A worker that cannot be seen must never get a second copy beside it."""

    async def story() -> None:
        async with world() as here:
            process = await here.python(SLEEP)
            told: list[str] = []
            with no_descriptor_left():
                left = await bury(Family(process, MARK), 0.1, 0.1, CLOCK, told.append)
            assert left == frozenset({process})
            assert told[0].startswith("cannot look at the processes now: Too many open files")
            assert alive(process)
            assert await bury_quietly(Family(process, MARK), 10.0, told) == frozenset()

    run(story())


CROWD = """
import os, sys, time
for _ in range(150):
    if os.fork() == 0:
        time.sleep(600)
open(sys.argv[1], "w").write("x\\n")
time.sleep(600)
"""


def test_a_crowd_is_buried_with_few_descriptors(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            process = await here.python(CROWD, str(tmp_path / "ready"))
            await text_of(tmp_path / "ready")
            told: list[str] = []
            before = len(os.listdir("/proc/self/fd"))
            assert await bury_quietly(Family(process, MARK), 60.0, told) == frozenset()
            assert len(os.listdir("/proc/self/fd")) == before
            assert told[0].startswith("SIGTERM sent to 151 processes: ")
            assert told[0].endswith("and 141 more")

    run(story())


def test_the_stop_signal_is_the_operators() -> None:
    async def story() -> None:
        async with world() as here:
            process = await here.python(SLEEP)
            sig = signal.SIGUSR1
            family = Family(process, MARK)
            left = await bury(family, 60.0, 5.0, CLOCK, lambda _: None, stop_signal=sig)
            assert left == frozenset()
            assert await here.exit_of(process) == Exit(signal=sig)

    run(story())
