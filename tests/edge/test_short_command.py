from __future__ import annotations

import asyncio
import os
import pwd
import signal
from pathlib import Path
from typing import Any

import pytest
from stepwarden.clock import SystemClock
from stepwarden.core.evidence import Exit, ProcessId
from stepwarden.edge import short_command
from stepwarden.edge.command_output import CUT_BYTES, KEPT_BYTES, CommandOutput
from stepwarden.edge.launcher import Launcher, LaunchSpec
from stepwarden.edge.process_probe import alive, identify
from stepwarden.edge.process_table import ProcessTable
from stepwarden.edge.short_command import Ended, ShortSpec, run_short, short_runner
from support.clocks import ShiftedClock
from support.process_world import BASE_ENV, PATIENCE, PYTHON, World, run, text_of, until, world
from support.waiting import wait_for

CLOCK = SystemClock()
TREE = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    open(sys.argv[1] + "/far", "w").write(f"{os.getpid()}\\n")
    time.sleep(600)
open(sys.argv[1] + "/main", "w").write(f"{os.getpid()}\\n")
time.sleep(600)
"""


def sh(script: str, *args: str, timeout: float = PATIENCE, **env: str) -> ShortSpec:
    launch = LaunchSpec(["/bin/sh", "-c", script, "sh", *args], {**BASE_ENV, **env})
    return ShortSpec(launch, timeout)


async def run_in(here: World, spec: ShortSpec) -> Ended:
    return await run_short(here.launcher, here.reaper, spec, CLOCK)


async def process_in(path: Path) -> ProcessId:
    process = identify(int(await text_of(path)))
    assert process is not None
    return process


def test_it_tells_how_the_command_ended_and_what_it_said() -> None:
    async def story() -> None:
        async with world() as here:
            good = await run_in(here, sh("echo fine; exit 0"))
            assert (good.ok, good.exit, good.output) == (True, Exit(code=0), "fine")
            assert good.sentence.startswith("ended with exit code 0 after ")
            bad = await run_in(here, sh("echo first; echo no such container >&2; exit 3"))
            assert (bad.ok, bad.exit, bad.timed_out) == (False, Exit(code=3), False)
            assert bad.output == "first\nno such container"
            assert bad.error.startswith("ended with exit code 3 after ")
            assert bad.error.endswith("; it said last: no such container")
            shot = await run_in(here, sh("kill -SEGV $$"))
            assert shot.exit == Exit(signal=signal.SIGSEGV)
            assert "was ended by signal SIGSEGV" in shot.error

    run(story())


def test_what_cannot_start_is_one_sentence() -> None:
    async def story() -> None:
        async with world() as here:
            spec = ShortSpec(LaunchSpec(["/nowhere/stop"], BASE_ENV), PATIENCE)
            ended = await run_in(here, spec)
            assert (ended.ok, ended.exit, ended.timed_out) == (False, None, False)
            assert ended.error == (
                "cannot start '/nowhere/stop': No such file or directory (ENOENT)"
            )

    run(story())


def test_o_proc_3_at_the_limit_the_whole_tree_of_the_command_is_killed(tmp_path: Path) -> None:
    """Those in sessions of their own and without living parents too; no second one piles up."""

    async def story() -> None:
        async with world() as here:
            launch = LaunchSpec([*PYTHON, "-c", TREE, str(tmp_path)], BASE_ENV)
            clock = ShiftedClock()
            running = asyncio.ensure_future(
                run_short(here.launcher, here.reaper, ShortSpec(launch, 1000.0), clock)
            )
            tree = [await process_in(tmp_path / name) for name in ("main", "far")]
            assert not running.done()
            clock.ahead = 1000.0
            ended = await running
            assert ended.timed_out
            assert ended.exit == Exit(signal=signal.SIGKILL)
            assert ended.left == frozenset()
            assert not any(map(alive, tree))
            assert ended.error == "took longer than its limit of 16 min 40 s and was killed"

    run(story())


def test_while_we_stood_still_it_ended_in_time(tmp_path: Path) -> None:
    """The deadline is long over when we look again, and so is the command."""

    async def story() -> None:
        async with world() as here:
            clock = ShiftedClock()
            script = "echo $$ > $1; until [ -e $2 ]; do sleep 0.01; done; echo done"
            spec = sh(script, str(tmp_path / "pid"), str(tmp_path / "go"), timeout=500.0)
            running = asyncio.ensure_future(run_short(here.launcher, here.reaper, spec, clock))
            command = await process_in(tmp_path / "pid")
            (tmp_path / "go").touch()
            wait_for(lambda: not alive(command))  # the loop stands still meanwhile
            clock.ahead = 1000.0
            ended = await running
            assert (ended.ok, ended.output) == (True, "done")

    run(story())


def test_a_limit_of_zero_or_less_starts_nothing_that_lives_on() -> None:
    async def story() -> None:
        async with world() as here:
            for limit in (0.0, -1.0, float("nan")):
                ended = await run_in(here, sh("exec sleep 600", timeout=limit))
                assert ended.timed_out
                assert "longer than its limit" in ended.error
            await until(lambda: not sleepers())

    run(story())


def sleepers() -> list[ProcessId]:
    found = []
    for entry in ProcessTable.scan().children(os.getpid()):
        try:
            comm = Path(f"/proc/{entry.pid}/comm").read_text()
        except OSError:
            continue
        if comm == "sleep\n" and not entry.gone:
            found.append(entry.process)
    return found


def test_cancelled_it_leaves_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            spec = sh("sleep 600 & echo $! > $1; wait", str(tmp_path / "pid"))
            running = asyncio.ensure_future(run_in(here, spec))
            child = await process_in(tmp_path / "pid")
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            await until(lambda: not alive(child))

    run(story())


class Interrupted(Launcher):
    """Whoever waits for a start is cancelled in the very turn in which it is done."""

    waiting: asyncio.Task[Ended]

    async def spawn(self, *args: Any, **kwargs: Any) -> ProcessId:
        process = await super().spawn(*args, **kwargs)
        self.waiting.cancel()
        return process


def test_cancelled_in_the_turn_of_its_start_it_leaves_nothing() -> None:
    async def story() -> None:
        async with world() as here:
            launcher = Interrupted()
            spec = sh("exec sleep 600")
            launcher.waiting = asyncio.ensure_future(run_short(launcher, here.reaper, spec, CLOCK))
            with pytest.raises(asyncio.CancelledError):
                await launcher.waiting
            await launcher.close()
            await until(lambda: not sleepers())

    run(story())


def test_what_it_leaves_running_in_time_is_left_alone(tmp_path: Path) -> None:
    """It started a container, say. Its prints go nowhere and hold nobody up."""

    async def story() -> None:
        async with world() as here:
            script = "(while :; do echo x 2>/dev/null; sleep 0.05; done) & echo $! > $1; echo up"
            ended = await run_in(here, sh(script, str(tmp_path / "pid")))
            child = await process_in(tmp_path / "pid")
            here.started.append(child)
            assert ended.ok
            assert "up" in ended.output.splitlines()
            assert alive(child)

    run(story())


def test_endless_output_of_any_bytes_is_bounded() -> None:
    async def story() -> None:
        async with world() as here:
            script = "head -c 30000000 /dev/urandom; printf '\\033[2J\\377\\nlast\\n'; exit 1"
            ended = await run_in(here, sh(script))
            assert ended.exit == Exit(code=1)
            assert ended.output.endswith("\\x1b[2J\\xff\nlast")
            assert ended.error.endswith("it said last: last")
            assert all(line.isprintable() for line in ended.output.splitlines())

    run(story())


def test_a_grown_output_is_cut_while_it_runs() -> None:
    output = CommandOutput()
    writer = os.dup(output.descriptor)
    os.write(writer, b"a" * (CUT_BYTES + 1))
    output.trim()
    assert os.fstat(writer).st_size == 0
    os.write(writer, b"\nend\n")
    assert output.close() == "a" * (KEPT_BYTES - 5) + "\nend"
    with pytest.raises(PermissionError):
        os.write(writer, b"more")
    os.close(writer)


def test_it_is_no_rank_and_no_member_of_the_worker() -> None:
    """Burying the worker must not take its stop command along."""

    async def story() -> None:
        async with world() as here:
            told = dict.fromkeys(("INCARNATION", "TARGET", "TOKEN", "PAGE_DIR", "WORKER"), "x")
            env = BASE_ENV | {f"STEPWARDEN_{name}": value for name, value in told.items()}
            launch = LaunchSpec(["/bin/sh", "-c", "env | grep ^STEP"], env)
            ended = await run_in(here, ShortSpec(launch, PATIENCE))
            names = dict(line.split("=") for line in ended.output.splitlines())
            assert names.keys() == {"STEPWARDEN_INCARNATION", "STEPWARDEN_WORKER"}
            assert names["STEPWARDEN_INCARNATION"].startswith("command-")

    run(story())


@pytest.mark.skipif(os.getuid() != 0, reason="only root may start things as another user")
def test_it_runs_as_another_user_and_its_output_is_kept() -> None:
    async def story() -> None:
        async with world() as here:
            launch = LaunchSpec(["/bin/sh", "-c", "id -u"], BASE_ENV, cwd="/", user="nobody")
            ended = await run_in(here, ShortSpec(launch, PATIENCE))
            assert ended.ok, ended.error
            assert ended.output == str(pwd.getpwnam("nobody").pw_uid)

    run(story())


def test_many_side_by_side_leave_no_descriptor_behind() -> None:
    async def story() -> None:
        async with world() as here:
            go = short_runner(here.launcher, here.reaper, CLOCK)
            assert (await go(sh("exit 0"))).ok
            await until(lambda: not sleepers())
            before = len(os.listdir("/proc/self/fd"))
            many = await asyncio.gather(*(go(sh(f"exit {number}")) for number in range(20)))
            assert [ended.exit for ended in many] == [Exit(code=n) for n in range(20)]
            await until(lambda: len(os.listdir("/proc/self/fd")) <= before)

    run(story())


def test_without_a_descriptor_it_is_an_error_and_no_exception(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        async with world() as here:

            def none_left() -> CommandOutput:
                raise OSError(24, "Too many open files")

            monkeypatch.setattr(short_command, "CommandOutput", none_left)
            ended = await run_in(here, sh("exit 0"))
            assert ended.error == "cannot be started: Too many open files"

    run(story())
