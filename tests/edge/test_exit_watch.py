from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from stepwarden.core.evidence import Exit, ProcessId
from stepwarden.edge import exit_watch
from stepwarden.edge.exit_watch import ExitWatch
from stepwarden.edge.pidfd_exit import reaped_exit
from stepwarden.edge.process_probe import identify
from support.process_world import run, text_of, until, world

SLEEP = "import time; time.sleep(600)"


def test_the_end_of_a_process_is_told_once() -> None:
    async def story() -> None:
        async with world() as here:
            process = await here.python(SLEEP)
            ended: list[ProcessId] = []
            watch = ExitWatch(ended.append)
            assert watch.add(process)
            assert watch.add(process)
            os.kill(process.pid, 9)
            await until(lambda: ended == [process])
            assert not watch.add(process)
            watch.close()

    run(story())


def test_out_of_descriptors_a_process_has_not_ended() -> None:
    """Told as an end it would cost a healthy worker its life."""

    async def story() -> None:
        own = identify(os.getpid())
        assert own is not None
        watch = ExitWatch(lambda _: None)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            with pytest.raises(OSError, match="Too many open files"):
                watch.add(own)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert watch.add(own)
        watch.close()

    asyncio.run(story())


ADOPTED = """
import os, sys, time
pid = os.fork()
if pid:
    open(sys.argv[1], "w").write(f"{pid}\\n")
    if sys.argv[3] == "reap":
        os.wait()
    time.sleep(600)
while not os.path.exists(sys.argv[1] + ".go"): time.sleep(0.01)
exec(sys.argv[2])
"""


@pytest.mark.parametrize(
    ("ending", "how"),
    [("os._exit(7)", Exit(code=7)), ("os._exit(0)", Exit(code=0)), ("os.abort()", Exit(signal=6))],
)
@pytest.mark.parametrize("parent", ["reap", "leave"])
def test_the_exit_of_somebody_elses_child_is_known(
    tmp_path: Path, ending: str, how: Exit, parent: str
) -> None:
    """As an adopted main's is: its starter is gone, and init reaps it, or nobody does."""
    if parent == "reap" and not kernel_keeps_exits():
        pytest.skip("this kernel tells the exit of a reaped process to nobody (before 6.14)")

    async def story() -> None:
        async with world() as here:
            await here.python(ADOPTED, str(tmp_path / "pid"), ending, parent)
            process = identify(int(await text_of(tmp_path / "pid")))
            assert process is not None
            told: list[tuple[ProcessId, Exit]] = []
            watch = ExitWatch(lambda _: None)
            assert watch.add(process, lambda *end: told.append(end))
            (tmp_path / "pid.go").touch()
            await until(lambda: bool(told))
            assert told == [(process, how)]
            watch.close()

    run(story())


def test_an_exit_that_nobody_tells_is_unknown_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As kernels before 6.14 leave it when somebody else was quicker to reap."""

    async def story() -> None:
        async with world() as here:
            monkeypatch.setattr(exit_watch, "reaped_exit", lambda _: None)
            monkeypatch.setattr(exit_watch, "unreaped_exit", lambda _: None)
            process, dropped = await here.python(SLEEP), await here.python(SLEEP)
            told: list[tuple[ProcessId, Exit]] = []
            watch = ExitWatch(lambda _: None)
            assert watch.add(process, lambda *end: told.append(end))
            assert watch.add(dropped, lambda *end: told.append(end))
            os.kill(dropped.pid, 9)
            await here.exit_of(dropped)
            os.kill(process.pid, 9)
            watch.drop(dropped)
            await until(lambda: bool(told))
            assert told == [(process, Exit())]
            watch.close()

    run(story())


def kernel_keeps_exits() -> bool:
    """Whether a pidfd tells the exit of a reaped process here."""
    with subprocess.Popen(
        [sys.executable, "-S", "-c", "input(); raise SystemExit(3)"], stdin=subprocess.PIPE
    ) as process:
        descriptor = os.pidfd_open(process.pid)
        process.communicate(b"\n")
    try:
        return reaped_exit(descriptor) == Exit(code=3)
    finally:
        os.close(descriptor)
