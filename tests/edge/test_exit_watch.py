from __future__ import annotations

import asyncio
import os
import resource

import pytest
from stepwarden.core.evidence import ProcessId
from stepwarden.edge.exit_watch import ExitWatch
from stepwarden.edge.process_probe import identify
from support.process_world import run, until, world

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
