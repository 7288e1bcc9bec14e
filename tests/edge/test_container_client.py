"""The parts that O-PROC-3 rests on: a container outlives its client, and only `stop` ends it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from stepwarden.clock import SystemClock
from stepwarden.core.evidence import Exit, ProcessId
from stepwarden.edge.launcher import LaunchSpec
from stepwarden.edge.process_probe import alive, identify
from stepwarden.edge.release_gate import ReleaseGate, wait_released
from stepwarden.edge.short_command import Ended, ShortSpec, run_short, short_runner
from stepwarden.edge.signals import send
from support.process_world import BASE_ENV, PATIENCE, PYTHON, World, run, text_of, until, world

CLOCK = SystemClock()
PROGRAM = str(Path(__file__).parents[1] / "support" / "container_engine.py")


class Docker:
    """The engine in `directory`, and its client's commands."""

    def __init__(self, here: World, directory: Path) -> None:
        self.here = here
        self.directory = directory

    def launch(self, verb: str, *more: str) -> LaunchSpec:
        return LaunchSpec([*PYTHON, PROGRAM, verb, str(self.directory), *more], BASE_ENV)

    async def short(self, *words: str, timeout: float = PATIENCE) -> Ended:
        spec = ShortSpec(self.launch(*words), timeout)
        return await run_short(self.here.launcher, self.here.reaper, spec, CLOCK)

    async def gate(self, limit: float) -> str:
        gate = ReleaseGate(files=(str(self.directory / "llm.lock"),), limit=limit)
        commands = short_runner(self.here.launcher, self.here.reaper, CLOCK)
        return await wait_released(gate, commands, CLOCK)

    async def client(self) -> tuple[ProcessId, ProcessId]:
        """A client, and the container that it started."""
        (self.directory / "llm.pid").unlink(missing_ok=True)
        client = await self.here.start(self.launch("run", "llm"))
        container = identify(int(await text_of(self.directory / "llm.pid")))
        assert container is not None
        return client, container

    @property
    def started(self) -> int:
        return len((self.directory / "started").read_text().splitlines())


@asynccontextmanager
async def docker(directory: Path) -> AsyncIterator[Docker]:
    async with world() as here:
        made = Docker(here, directory)
        await here.start(made.launch("serve"))
        await text_of(directory / "serving")
        try:
            yield made
        finally:
            await made.short("remove", "llm")


def test_o_proc_3_a_killed_client_leaves_its_container_and_stop_frees_the_name(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with docker(tmp_path) as engine:
            client, container = await engine.client()
            send(client, signal.SIGKILL)
            assert await engine.here.exit_of(client) == Exit(signal=signal.SIGKILL)
            assert alive(container)
            again = await engine.short("run", "llm")
            assert again.exit == Exit(code=125)
            assert again.error.endswith("it said last: the container name llm is already in use")
            assert "llm.lock is locked" in await engine.gate(0.0)
            stopped = await engine.short("stop", "llm")
            assert stopped.ok, stopped.error
            assert await engine.gate(PATIENCE) == ""
            _, container = await engine.client()
            assert (engine.started, alive(container)) == (2, True)

    run(story())


def test_o_proc_3_a_stop_that_hangs_is_ended_itself_and_holds_up_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        async with docker(tmp_path) as engine:
            _, container = await engine.client()
            turns = 0

            async def count() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0.01)

            counting = asyncio.create_task(count())
            stopping = asyncio.create_task(engine.short("stop", "llm", "hang", timeout=2.0))
            await until(lambda: hanging(tmp_path) == 2 or stopping.done())
            ended = await stopping
            counting.cancel()
            assert ended.timed_out
            assert ended.left == frozenset()
            pids = [int(line) for line in (tmp_path / "hanging").read_text().splitlines()]
            assert len(pids) == 2
            await until(lambda: all(identify(pid) is None for pid in pids))
            assert turns >= 20
            assert alive(container)
            assert "llm.lock is locked" in await engine.gate(0.0)

    run(story())


def hanging(directory: Path) -> int:
    path = directory / "hanging"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_o_proc_3_a_pre_start_that_fails_is_told_as_such(tmp_path: Path) -> None:
    """Whether that counts is the flag's to say: `docker rm -f` of nothing fails as a rule."""

    async def story() -> None:
        async with docker(tmp_path) as engine:
            ended = await engine.short("remove", "llm")
            assert (ended.ok, ended.exit) == (False, Exit(code=1))
            assert ended.error.endswith("it said last: no such container: llm")

    run(story())
