from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from pathlib import Path

import pytest
from stepwarden.core.evidence import Exit, ProcessId
from stepwarden.edge import launcher
from stepwarden.edge.launcher import Launcher, LaunchSpec, SpawnFailed
from stepwarden.edge.process_probe import alive, identify
from stepwarden.edge.process_table import ProcessTable, read_process
from stepwarden.edge.signals import send
from support.clocks import FakeClock
from support.process_world import BASE_ENV, HOLD_LEASE, PATIENCE, PYTHON, run, text_of, until, world

SLEEP = "import time; time.sleep(600)"
LOOK_AT_SELF = """
import os, sys
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
mask = os.umask(0)
with open(sys.argv[1], "w") as out:
    fds = [int(name) for name in os.listdir("/proc/self/fd")]
    real = []
    for fd in fds:
        try:
            target = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if target != sys.argv[1]:
            real.append(f"{fd}={target}")
    print(status["SigBlk"].strip(), status["SigIgn"].strip(), os.getsid(0) == os.getpid(),
          os.getcwd(), ",".join(sorted(real)), file=out)
"""


def test_o_proc_5_nothing_of_ours_is_inherited(tmp_path: Path) -> None:
    async def story() -> None:
        leaks = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
        for leak in leaks:
            os.set_inheritable(leak, True)
        old = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
        try:
            async with world() as here:
                out = tmp_path / "out"
                # sh between: Python itself ignores two signals, so it cannot be asked directly.
                script = (
                    f"grep -E 'SigBlk|SigIgn' /proc/self/status > {tmp_path}/masks; exec \"$@\""
                )
                argv = ["/bin/sh", "-c", script, "sh", *PYTHON, "-c", LOOK_AT_SELF, str(out)]
                await here.start(LaunchSpec(argv, BASE_ENV, cwd=str(tmp_path)))
                _, _, leader, cwd, fds = (await text_of(out)).split(" ", 4)
                masks = (tmp_path / "masks").read_text().split()
                assert (masks[0], int(masks[1], 16)) == ("SigBlk:", 0)
                # 32 and 33 are the C library's own; its posix_spawn leaves them ignored. Harmless.
                assert (masks[2], int(masks[3], 16) & ~(3 << 31)) == ("SigIgn:", 0)
                assert leader == "True"
                assert cwd == str(tmp_path)
                assert {entry.split("=")[0] for entry in fds.split(",")} == {"0", "1", "2"}
                assert "0=/dev/null" in fds
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])
            signal.signal(signal.SIGUSR2, old)
            for leak in leaks:
                os.close(leak)

    run(story())


def test_output_is_appended_and_any_bytes_pass(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            out = tmp_path / "out"
            out.write_text("before\n")
            odd = os.fsdecode(b"\xff\xc3\xa9")
            code = "import os,sys; print(os.fsencode(sys.argv[1]), os.environb[b'ODD'], flush=True)"
            argv = [*PYTHON, "-c", code, odd]
            spec = LaunchSpec(argv, {**BASE_ENV, "ODD": odd}, stdout_path=str(out))
            process = await here.start(spec)
            assert await here.exit_of(process) == Exit(code=0)
            raw = os.fsencode(odd)
            assert out.read_text() == f"before\n{raw!r} {raw!r}\n"

    run(story())


def _script(path: Path, text: str, mode: int = 0o755) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_failures_carry_errno_and_path(tmp_path: Path) -> None:
    async def story() -> None:
        plain = _script(tmp_path / "plain", "no program\n", 0o644)
        garbage = _script(tmp_path / "garbage", "\x01\x02\x03")
        lost = _script(tmp_path / "lost", "#!/nowhere/interpreter\n")
        big = "x" * (4 << 20)
        cases = [
            (LaunchSpec(["/nowhere/x"], BASE_ENV), ["/nowhere/x", "ENOENT"]),
            (LaunchSpec(["no-such-program"], BASE_ENV), ["no-such-program", "ENOENT"]),
            (LaunchSpec([plain], BASE_ENV), [plain, "EACCES", "Permission denied"]),
            (LaunchSpec([garbage], BASE_ENV), [garbage, "ENOEXEC"]),
            (LaunchSpec([lost], BASE_ENV), [lost, "interpreter"]),
            (LaunchSpec(["/bin/true"], BASE_ENV, cwd="/nowhere/d"), ["/nowhere/d", "ENOENT"]),
            (LaunchSpec(["/bin/true"], BASE_ENV, cwd=plain), [plain, "ENOTDIR"]),
            (LaunchSpec(["/bin/true"], BASE_ENV, stdout_path="/nowhere/o"), ["/nowhere/o"]),
            (LaunchSpec(["/bin/true", "a\0b"], BASE_ENV), ["/bin/true", "null byte"]),
            (LaunchSpec(["/bin/true", big], BASE_ENV), ["/bin/true", "E2BIG"]),
        ]
        async with world() as here:
            for spec, words in cases:
                with pytest.raises(SpawnFailed) as caught:
                    await here.start(spec)
                assert "\n" not in str(caught.value)
                for word in words:
                    assert word in str(caught.value)
            # The launchers that failed are gone, and the next start works.
            process = await here.python("raise SystemExit(7)")
            assert await here.exit_of(process) == Exit(code=7)

    run(story())


def test_where_a_program_is_looked_for(tmp_path: Path) -> None:
    async def story() -> None:
        _script(tmp_path / "program", "#!/bin/sh\nexit 5\n")
        async with world() as here:
            by_path = LaunchSpec(["program"], {"PATH": f"/nowhere:{tmp_path}"})
            by_cwd = LaunchSpec(["./program"], {}, cwd=str(tmp_path))
            for spec in (by_path, by_cwd):
                assert await here.exit_of(await here.start(spec)) == Exit(code=5)

    run(story())


def test_an_output_that_cannot_be_opened_in_time_is_a_failed_start(tmp_path: Path) -> None:
    """A named pipe that nobody reads blocks whoever opens it."""

    async def story() -> None:
        os.mkfifo(tmp_path / "pipe")
        spec = LaunchSpec(["/bin/true"], BASE_ENV, stdout_path=str(tmp_path / "pipe"))
        async with world() as here:
            with pytest.raises(SpawnFailed, match="limit"):
                await here.start(spec, 0.5)

    run(story())


def test_a_worker_that_ends_at_once_keeps_its_exit_code() -> None:
    async def story() -> None:
        async with world() as here:
            spec = LaunchSpec(["/bin/sh", "-c", "exit 9"], BASE_ENV)
            for _ in range(20):
                assert await here.exit_of(await here.start(spec)) == Exit(code=9)

    run(story())


def test_a_blocked_exec_does_not_hold_the_loop(tmp_path: Path) -> None:
    """The executable carries a write lease that its holder does not give back."""

    async def story() -> None:
        async with world() as here:
            target = _script(tmp_path / "program", "#!/bin/sh\nexit 0\n")
            holder = await here.python(HOLD_LEASE, target, str(tmp_path / "held"))
            await text_of(tmp_path / "held")
            turns = 0

            async def tick() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0.01)

            ticker = asyncio.create_task(tick())
            others = here.start(LaunchSpec([*PYTHON, "-c", "pass"], BASE_ENV))
            blocked = here.start(LaunchSpec([target], BASE_ENV), 1.0)
            results = await asyncio.gather(blocked, others, return_exceptions=True)
            ticker.cancel()
            assert isinstance(results[0], SpawnFailed)
            assert "limit" in str(results[0])
            assert isinstance(results[1], ProcessId)
            assert turns >= 20
            # Its launcher process was killed, so the program cannot start late.
            await until(lambda: len(_spares()) <= 1)
            send(holder, signal.SIGKILL)

    run(story())


def test_a_hundred_spawns_three_at_a_time() -> None:
    async def story() -> None:
        async with world() as here:
            spec = LaunchSpec(["/bin/sleep", "600"], BASE_ENV)
            gate = asyncio.Semaphore(3)

            async def one() -> ProcessId:
                async with gate:
                    process = await here.start(spec)
                    assert Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n"
                    send(process, signal.SIGKILL)
                    return process

            processes = await asyncio.gather(*(one() for _ in range(100)))
            assert len(set(processes)) == 100
            for process in processes:
                assert await here.exit_of(process) == Exit(signal=signal.SIGKILL)

    run(story())


def test_a_dead_or_killed_spare_costs_no_start() -> None:
    async def story() -> None:
        async with world() as here:
            await until(lambda: len(_spares()) == 1)
            assert send(_spares()[0], signal.SIGKILL)
            process = await here.python(SLEEP)
            assert alive(process)

    run(story())


def _spares() -> list[ProcessId]:
    found = []
    for entry in ProcessTable.scan().children(os.getpid()):
        try:
            line = Path(f"/proc/{entry.pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"launch_program" in line and not entry.gone:
            found.append(entry.process)
    return found


def test_close_ends_the_spare_and_leaves_workers() -> None:
    async def story() -> None:
        async with world() as here:
            process = await here.python(SLEEP)
            await here.launcher.close()
            await until(lambda: not _spares())
            assert alive(process)

    run(story())


DAEMON = """
import asyncio, os, sys
from stepwarden.edge.launcher import Launcher
async def main():
    launcher = Launcher()
    await launcher.start()
    open(sys.argv[1], "w").write(f"{launcher._spare.process.pid}\\n")
    await asyncio.sleep(600)
asyncio.run(main())
"""


def test_a_spare_ends_with_its_daemon(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            env = {**BASE_ENV, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            out = tmp_path / "spare"
            daemon = await here.start(LaunchSpec([sys.executable, "-c", DAEMON, str(out)], env))
            spare = identify(int(await text_of(out)))
            assert spare is not None
            send(daemon, signal.SIGKILL)
            await until(lambda: not alive(spare))

    run(story())


def test_limit_zero_is_an_immediate_time_out_and_cancel_leaves_nothing() -> None:
    async def story() -> None:
        async with world() as here:
            with pytest.raises(SpawnFailed):
                await here.start(LaunchSpec(["/bin/sleep", "600"], BASE_ENV), -1.0)
            task = asyncio.create_task(here.start(LaunchSpec(["/bin/sleep", "600"], BASE_ENV)))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await until(lambda: not _sleepers())

    run(story())


def _sleepers() -> list[int]:
    mine = ProcessTable.scan().children(os.getpid())
    return [
        entry.pid
        for entry in mine
        if not entry.gone and Path(f"/proc/{entry.pid}/comm").read_text() == "sleep\n"
    ]


def test_the_spare_becomes_the_worker_and_a_new_one_waits() -> None:
    """No interpreter start lies on the way from a crash to the next exec."""

    async def story() -> None:
        async with world() as here:
            spec = LaunchSpec(["/bin/sleep", "600"], BASE_ENV)
            for _ in range(5):
                await until(lambda: len(_spares()) == 1)
                (spare,) = _spares()
                assert await here.start(spec) == spare

    run(story())


def test_without_an_interpreter_the_failure_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
        with pytest.raises(SpawnFailed, match="launcher process"):
            await Launcher().start()

    run(story())


def test_a_worker_gets_the_limit_of_descriptors_that_it_would_have_without_us(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with world() as here:
            told = tmp_path / "told"
            code = "import resource as r; print(*r.getrlimit(r.RLIMIT_NOFILE), flush=True)"
            spec = LaunchSpec([*PYTHON, "-c", code], BASE_ENV, None, str(told), descriptors=512)
            await here.start(spec)
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            assert await text_of(told) == f"512 {hard}"

    run(story())


def test_no_more_start_side_by_side_than_are_allowed() -> None:
    """Hundreds of workers at boot: begun together, each would take longer than its limit."""

    async def story() -> None:
        async with world() as here:
            await here.launcher.close()
            here.launcher = Launcher(at_once=2)
            spec = LaunchSpec(["/bin/sleep", "600"], BASE_ENV)
            most = 0

            async def count() -> None:
                nonlocal most
                while True:
                    most = max(most, len(_spares()))
                    await asyncio.sleep(0.001)

            counting = asyncio.create_task(count())
            await asyncio.gather(*(here.start(spec) for _ in range(30)))
            counting.cancel()
            assert 1 <= most <= 3  # the third waits ahead of time, without a request

    run(story())


def test_the_limit_of_a_start_begins_with_its_turn(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            target = _script(tmp_path / "program", "#!/bin/sh\nexit 0\n")
            holder = await here.python(HOLD_LEASE, target, str(tmp_path / "held"))
            await text_of(tmp_path / "held")
            clock = FakeClock()
            await here.launcher.close()
            here.launcher = Launcher(clock, at_once=1)
            blocked = asyncio.create_task(here.start(LaunchSpec([target], BASE_ENV), 600.0))
            await asyncio.sleep(0)
            sleeper = LaunchSpec(["/bin/sleep", "600"], BASE_ENV)
            waiting = asyncio.create_task(here.start(sleeper, PATIENCE))
            await asyncio.sleep(0)
            clock.now += 2 * PATIENCE
            blocked.cancel()
            assert alive(await waiting)
            send(holder, signal.SIGKILL)

    run(story())


def test_an_exec_that_hangs_gives_its_turn_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "TURN_SECONDS", 0.1)

    async def story() -> None:
        async with world() as here:
            target = _script(tmp_path / "program", "#!/bin/sh\nexit 0\n")
            holder = await here.python(HOLD_LEASE, target, str(tmp_path / "held"))
            await text_of(tmp_path / "held")
            await here.launcher.close()
            here.launcher = Launcher(at_once=1)
            blocked = asyncio.create_task(here.start(LaunchSpec([target], BASE_ENV), 600.0))
            await asyncio.sleep(0)
            await here.start(LaunchSpec(["/bin/sleep", "600"], BASE_ENV))
            assert not blocked.done()
            blocked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await blocked
            send(holder, signal.SIGKILL)

    run(story())


def is_stopped(process: ProcessId) -> bool:
    entry = read_process(process.pid)
    return entry is not None and entry.stopped


def test_a_spare_that_somebody_stopped_goes_on() -> None:
    async def story() -> None:
        async with world() as here:
            spare = here.launcher._spare
            assert spare is not None
            send(spare.process, signal.SIGSTOP)
            await until(lambda: is_stopped(spare.process))
            began = await here.start(LaunchSpec([*PYTHON, "-c", SLEEP], BASE_ENV))
            assert began == spare.process

    run(story())


def test_who_is_to_become_the_worker_is_told_before_it_can_be(tmp_path: Path) -> None:
    """Also of the second one, where the first had died while it waited."""

    async def story() -> None:
        async with world() as here:
            told: list[ProcessId] = []

            async def chosen(process: ProcessId) -> None:
                told.append(process)
                await asyncio.sleep(0.1)
                assert not (tmp_path / "began").exists()

            argv = ["/bin/sh", "-c", "echo > began; exec sleep 600"]
            spec = LaunchSpec(argv, BASE_ENV, cwd=str(tmp_path))
            first = await here.launcher.spawn(spec, PATIENCE, chosen)
            here.started.append(first)
            assert told == [first]
            await until((tmp_path / "began").exists)
            (tmp_path / "began").unlink()
            await until(lambda: here.launcher._spare is not None)
            spare = here.launcher._spare
            assert spare is not None
            send(spare.process, signal.SIGKILL)
            await until(lambda: not alive(spare.process))
            second = await here.launcher.spawn(spec, PATIENCE, chosen)
            here.started.append(second)
            assert told == [first, spare.process, second]

    run(story())


def test_nothing_is_started_where_it_cannot_be_told_who_will_be_the_worker(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            told: list[ProcessId] = []

            async def chosen(process: ProcessId) -> None:
                told.append(process)
                raise OSError("no")

            spec = LaunchSpec(["/bin/sh", "-c", "echo > began"], BASE_ENV, cwd=str(tmp_path))
            with pytest.raises(OSError, match="no"):
                await here.launcher.spawn(spec, PATIENCE, chosen)
            await until(lambda: not alive(told[0]))
            assert not (tmp_path / "began").exists()
            assert await here.start(LaunchSpec([*PYTHON, "-c", SLEEP], BASE_ENV))

    run(story())
