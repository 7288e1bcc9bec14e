from __future__ import annotations

import os
import signal

import pytest
from stepwarden.core.evidence import Exit, ProcessId
from stepwarden.edge.process_probe import alive, identify
from stepwarden.edge.signals import send
from support.process_world import run, until, world

SLEEP = "import time; time.sleep(600)"


@pytest.mark.parametrize("pid", [0, 1, -1, -5])
def test_groups_and_init_are_never_signalled(pid: int) -> None:
    assert send(ProcessId(pid, 0), 0) is False


def test_we_and_our_ancestors_are_never_signalled() -> None:
    for pid in (os.getpid(), os.getppid()):
        process = identify(pid)
        assert process is not None
        assert send(process, 0) is False


def test_only_the_process_with_the_same_start_time() -> None:
    async def story() -> None:
        async with world() as here:
            process = await here.python(SLEEP)
            stranger = ProcessId(process.pid, process.start_ticks + 1)
            assert send(stranger, signal.SIGKILL) is False
            assert alive(process)
            assert not alive(stranger)
            assert send(process, signal.SIGKILL) is True
            assert await here.exit_of(process) == Exit(signal=signal.SIGKILL)
            await until(lambda: not alive(process))
            assert send(process, signal.SIGKILL) is False

    run(story())
