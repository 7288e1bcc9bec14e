"""Real workers that print all kinds of things into a real log process."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from stepwarden.core.evidence import Exit, ProcessId
from stepwarden.edge.family import Family
from stepwarden.edge.launcher import Launcher, LaunchSpec, SpawnFailed
from stepwarden.edge.output_capture import CaptureSpec, open_capture
from stepwarden.edge.output_tail import tail
from stepwarden.edge.process_probe import alive, identify
from stepwarden.edge.process_table import ProcessTable
from stepwarden.edge.signals import send
from support.process_world import BASE_ENV, PATIENCE, PYTHON, World, run, text_of, until, world

MIB = 1 << 20
SPEC_SIZE, KEPT = 4 * MIB, 5


@asynccontextmanager
async def captured(
    here: World, directory: Path, code: str, *args: str
) -> AsyncIterator[tuple[ProcessId, ProcessId]]:
    """A worker and its log process; both are gone after the block."""
    with await open_capture(here.launcher, CaptureSpec(directory, SPEC_SIZE, KEPT)) as capture:
        here.started.append(capture.process)
        spec = LaunchSpec([*PYTHON, "-c", code, *args], BASE_ENV, output_fd=capture.output_fd)
        worker = await here.start(spec)
    yield worker, capture.process
    send(worker, signal.SIGKILL)
    # It ends by itself once nobody can write any more.
    await until(lambda: not alive(capture.process))


async def output_of(here: World, directory: Path, code: str, *args: str) -> bytes:
    """Everything that a program printed, as it lies in the files."""
    async with captured(here, directory, code, *args) as (worker, log):
        assert await here.exit_of(worker) == Exit(code=0)
        await until(lambda: not alive(log))
        assert await here.exit_of(log) == Exit(code=0)
    return everything(directory)


def everything(directory: Path) -> bytes:
    """The files, the oldest first."""
    formers = sorted(directory.glob("current.log.*"), key=lambda path: -int(path.suffix[1:]))
    return b"".join(path.read_bytes() for path in [*formers, directory / "current.log"])


def test_o_logs_1_five_mebibytes_without_a_newline(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            code = "import os, sys; sys.stdout.write('x' * (5 << 20)); print('\\nafter')"
            assert await output_of(here, tmp_path, code) == b"x" * (5 * MIB) + b"\nafter\n"
            assert tail(tmp_path, 1) == ["after"]

    run(story())


def test_o_logs_1_bytes_that_are_no_text(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            code = "import os; os.write(2, bytes([0x88, 0xFF, 0])); os.write(1, b'\\nlater\\n')"
            assert await output_of(here, tmp_path, code) == b"\x88\xff\x00\nlater\n"
            assert tail(tmp_path, 2) == ["\ufffd\ufffd\\x00", "later"]

    run(story())


def test_o_logs_1_a_character_in_two_writes(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            code = (
                "import os, sys; os.write(1, '€'.encode()[:1])\n"
                "open(sys.argv[1], 'w').write('1\\n')\n"
                "while not os.path.exists(sys.argv[2]): pass\n"
                "os.write(1, '€'.encode()[1:] + b'\\n')"
            )
            first, second = tmp_path / "first", tmp_path / "second"
            logs = tmp_path / "logs"
            async with captured(here, logs, code, str(first), str(second)) as (worker, _):
                await text_of(first)
                await until((logs / "current.log").exists)
                await until(lambda: everything(logs) == "€".encode()[:1])
                second.touch()
                await here.exit_of(worker)
            assert tail(logs, 1) == ["€"]

    run(story())


def test_o_logs_1_ten_thousand_states_of_a_progress_bar(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            code = (
                "import os\nfor n in range(10_001): os.write(2, b'\\rloading %d/10000' % n)\n"
                "os.write(2, b'\\nready\\n')"
            )
            assert len(await output_of(here, tmp_path, code)) > 150_000
            assert tail(tmp_path, 5) == ["loading 10000/10000", "ready"]

    run(story())


RATE = 200 * MIB / 60
SECONDS = 6.0
FLOOD = """
import os, sys, time
rate, seconds, told = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
line = b"e" * 1023 + b"\\n"
begin, written, longest = time.monotonic(), 0, 0.0
while (now := time.monotonic()) < begin + seconds:
    while written < rate * (now - begin):
        before = time.monotonic()
        written += os.write(2, line * 16)
        longest = max(longest, time.monotonic() - before)
    time.sleep(0.005)
with open(told, "w") as out:
    print(written, longest, file=out)
time.sleep(600)
"""


def test_o_logs_1_two_hundred_megabytes_a_minute(tmp_path: Path) -> None:
    """The rate for a shorter time: what counts is that nothing fills up meanwhile."""

    async def story() -> None:
        async with world() as here:
            told, logs = tmp_path / "told", tmp_path / "logs"
            arguments = (str(RATE), str(SECONDS), str(told))
            async with captured(here, logs, FLOOD, *arguments) as (worker, log):
                ours, its = psutil.Process(), psutil.Process(log.pid)
                before = ours.memory_info().rss, its.memory_info().rss
                most = before
                while not told.exists():
                    now = ours.memory_info().rss, its.memory_info().rss
                    most = max(most[0], now[0]), max(most[1], now[1])
                    await asyncio.sleep(0.05)
                written, longest = (await text_of(told)).split()
                assert most[0] - before[0] < 50 * MIB
                assert most[1] - before[1] < 50 * MIB
                assert int(written) >= 0.9 * RATE * SECONDS
                # A worker that is blocked stays so; how long a busy machine holds it says nothing.
                assert float(longest) < SECONDS / 2
                assert alive(worker)
                await until(lambda: len(everything(logs)) == int(written))
            assert b"dropped" not in everything(logs)

    run(story())


def test_o_logs_1_closed_outputs_and_a_worker_that_goes_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            code = (
                "import os, time; os.write(1, b'bye\\n'); os.close(1); os.write(2, b'still\\n')\n"
                "os.close(2); time.sleep(600)"
            )
            async with captured(here, tmp_path, code) as (worker, log):
                await until(lambda: not alive(log))
                assert alive(worker)
            assert tail(tmp_path, 5) == ["bye", "still"]

    run(story())


def test_a_directory_that_cannot_be_written_to_blocks_no_worker(tmp_path: Path) -> None:
    async def story() -> None:
        (tmp_path / "file").write_text("in the way")
        async with world() as here:
            code = "import sys; sys.stdout.write('y' * (20 << 20))"
            async with captured(here, tmp_path / "file", code) as (worker, _):
                assert await here.exit_of(worker) == Exit(code=0)

    run(story())


def test_whoever_asks_it_to_end_is_not_obeyed(tmp_path: Path) -> None:
    """The worker would break at its next print."""

    async def story() -> None:
        async with world() as here:
            code = "import time; print('a', flush=True); time.sleep(600)"
            async with captured(here, tmp_path, code) as (_, log):
                await until(lambda: tail(tmp_path, 1) == ["a"])
                for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                    assert send(log, number)
                status = Path(f"/proc/{log.pid}/status")
                assert "SigPnd:\t0000000000000000" in status.read_text()
                assert alive(log)

    run(story())


def _pipes(pid: int) -> dict[str, str]:
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            found[name] = os.readlink(f"/proc/{pid}/fd/{name}")
        except OSError:
            continue
    return found


def test_o_proc_5_nobody_but_the_log_process_reads_and_we_keep_no_end(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            code = "import time; print('a', flush=True); time.sleep(600)"
            async with captured(here, tmp_path, code) as (worker, log):
                await until(lambda: tail(tmp_path, 1) == ["a"])
                its, workers = _pipes(log.pid), _pipes(worker.pid)
                pipe = its["0"]
                assert pipe.startswith("pipe:")
                assert workers == {"0": "/dev/null", "1": pipe, "2": pipe}
                assert its == {
                    "0": pipe,
                    "1": "/dev/null",
                    "2": "/dev/null",
                    "3": str(tmp_path / "current.log"),
                }
                assert pipe not in _pipes(os.getpid()).values()
                assert os.getsid(log.pid) == log.pid

    run(story())


def test_burial_does_not_take_it_for_a_part_of_the_worker(tmp_path: Path) -> None:
    async def story() -> None:
        os.environ["STEPWARDEN_INCARNATION"] = mark = "w-1-capture"
        try:
            async with world() as here:
                code = "import time; print('a', flush=True); time.sleep(600)"
                async with captured(here, tmp_path, code) as (worker, log):
                    await until(lambda: tail(tmp_path, 1) == ["a"])
                    family = Family(worker, mark, tmp_path)
                    table = ProcessTable.scan()
                    family.observe(table)
                    await family.search(table, PATIENCE)
                    family.observe(ProcessTable.scan())
                    assert worker in family.known
                    assert log not in family.known
        finally:
            del os.environ["STEPWARDEN_INCARNATION"]

    run(story())


SUPERVISOR = """
import asyncio, sys
from pathlib import Path
from stepwarden.edge.launcher import Launcher, LaunchSpec
from stepwarden.edge.output_capture import CaptureSpec, open_capture
async def main():
    launcher = Launcher()
    await launcher.start()
    with await open_capture(launcher, CaptureSpec(Path(sys.argv[1]), 1 << 20, 2)) as capture:
        code = "import time\\nfor n in range(10**9): print(n, flush=True); time.sleep(0.01)"
        argv = [sys.executable, "-I", "-S", "-c", code]
        worker = await launcher.spawn(LaunchSpec(argv, {}, output_fd=capture.output_fd), 30.0)
    with open(sys.argv[2], "w") as out:
        print(worker.pid, capture.process.pid, file=out)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def test_it_outlives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            env = {**BASE_ENV, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            logs, told = tmp_path / "logs", tmp_path / "told"
            argv = [sys.executable, "-c", SUPERVISOR, str(logs), str(told)]
            supervisor = await here.start(LaunchSpec(argv, env))
            pids = [int(word) for word in (await text_of(told)).split()]
            worker, log = (process for pid in pids if (process := identify(pid)) is not None)
            here.started += [worker, log]
            send(supervisor, signal.SIGKILL)
            await here.exit_of(supervisor)
            seen = int((tail(logs, 1) or ["0"])[0])
            await until(lambda: int((tail(logs, 1) or ["0"])[0]) > seen + 20)
            assert alive(worker)
            send(worker, signal.SIGKILL)
            await until(lambda: not alive(log))

    run(story())


def test_a_start_that_fails_leaves_no_log_process(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            spec = CaptureSpec(tmp_path, MIB, 1)
            with await open_capture(here.launcher, spec) as capture:
                here.started.append(capture.process)
                missing = LaunchSpec(["/nowhere"], BASE_ENV, output_fd=capture.output_fd)
                with pytest.raises(SpawnFailed):
                    await here.start(missing)
            await until(lambda: not alive(capture.process))

    run(story())


def test_a_log_process_that_does_not_start_is_a_failed_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with world() as here:
            before = len(os.listdir("/proc/self/fd"))
            with pytest.raises(SpawnFailed, match="cannot capture the output"):
                await open_capture(here.launcher, CaptureSpec(tmp_path, MIB, 1), limit=0.0)
            monkeypatch.setattr(sys, "executable", "/nowhere/python")
            launcher = here.launcher
            with pytest.raises(SpawnFailed, match="/nowhere/python"):
                await open_capture(launcher, CaptureSpec(tmp_path, MIB, 1))
            monkeypatch.undo()
            await here.launcher.close()
            here.launcher = Launcher()
            assert len(os.listdir("/proc/self/fd")) <= before

    run(story())
