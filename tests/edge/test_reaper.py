from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest
from stepwarden.core.evidence import Exit, ProcessId
from stepwarden.edge import reaper
from stepwarden.edge.process_probe import identify
from stepwarden.edge.process_table import ProcessTable
from stepwarden.edge.signals import send
from support.process_world import run, text_of, until, world

ORPHANS = """
import os, sys, time
for _ in range(200):
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(0.5)
        os._exit(0)
    os.wait()
open(sys.argv[1], "w").write("done\\n")
time.sleep(600)
"""


def test_o_proc_4_orphans_are_reaped_and_exit_codes_are_kept(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            await here.python(ORPHANS, str(tmp_path / "done"))
            second = await here.python("import time; time.sleep(0.5); raise SystemExit(7)")
            await text_of(tmp_path / "done")
            assert await here.exit_of(second) == Exit(code=7)
            await until(lambda: len(here.exits) >= 201)
            await until(lambda: not any(e.gone for e in ProcessTable.scan().children(os.getpid())))

    run(story())


def test_a_failing_handler_loses_no_exit() -> None:
    async def story() -> None:
        async with world() as here:
            seen: list[str] = []
            loop = here.loop
            loop.set_exception_handler(lambda _, context: seen.append(context["message"]))

            def fail(pid: int, how: Exit) -> None:
                raise ValueError(pid, how)

            here.on_exit = fail
            first = await here.python("raise SystemExit(3)")
            second = await here.python("raise SystemExit(4)")
            assert await here.exit_of(first) == Exit(code=3)
            assert await here.exit_of(second) == Exit(code=4)
            assert seen[:2] == ["exit handler failed"] * 2

    run(story())


def test_signals_and_core_dumps_are_told_apart_from_codes() -> None:
    async def story() -> None:
        async with world() as here:
            code = "import os, resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0));"
            process = await here.python(code + "os.kill(os.getpid(), 11)")
            assert await here.exit_of(process) == Exit(signal=11)

    run(story())


def test_an_exit_without_a_start_time_is_kept_while_a_start_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Out of descriptors nobody can read it; the worker has ended all the same."""

    async def story() -> None:
        async with world() as here:
            monkeypatch.setattr(reaper, "read_process", lambda _: None)
            with here.reaper.expecting():
                process = await here.python("raise SystemExit(5)")
                assert await here.exit_of(process) == Exit(code=5)
                with here.reaper.expecting():
                    pass
                assert here.reaper.exit_of(process) == Exit(code=5)
            assert here.reaper.exit_of(process) is None  # its pid may be another's from now on

    run(story())


def test_an_exit_can_be_waited_for_by_many_and_given_up() -> None:
    async def story() -> None:
        async with world() as here:
            process = await here.python("import time; time.sleep(600)")
            waits = [asyncio.create_task(here.reaper.wait_exit(process)) for _ in range(3)]
            await asyncio.sleep(0)
            waits.pop().cancel()
            assert send(process, signal.SIGTERM)
            assert await asyncio.gather(*waits) == [Exit(signal=signal.SIGTERM)] * 2
            # Known still, after it was reaped.
            assert await here.reaper.wait_exit(process) == Exit(signal=signal.SIGTERM)

    run(story())


def test_nobody_waits_for_what_is_not_ours_to_reap() -> None:
    async def story() -> None:
        async with world() as here:
            parent = identify(os.getppid())
            assert parent is not None
            assert await here.reaper.wait_exit(parent) == Exit()
            assert await here.reaper.wait_exit(ProcessId(2**22 - 1, 5)) == Exit()

    run(story())
