"""Workers are started by the hundred in a process that serves gRPC, and nobody's beats wait."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from stepwarden.clock import SystemClock
from stepwarden.core.evidence import Exit
from stepwarden.core.heartbeat import BeatFacts
from stepwarden.edge.agent_service import Admission, AgentServer
from stepwarden.edge.launcher import LaunchSpec, SpawnFailed
from stepwarden.edge.listen import UnixTarget
from stepwarden.edge.process_probe import alive
from stepwarden.edge.signals import send
from support import beat_flood
from support.process_world import BASE_ENV, HOLD_LEASE, PATIENCE, World, run, text_of, until, world

CYCLES = 500
AT_ONCE = 3
TOKEN = "s3cret"


@dataclass
class Heard:
    """What the server was told."""

    beats: int = 0
    latest: float = 0.0
    refused: list[object] = field(default_factory=list)

    def on_beat(self, _worker: str, _incarnation: str, facts: BeatFacts, _now: float) -> None:
        """Note how long after it was made a beat is handled."""
        self.beats += 1
        self.latest = max(self.latest, time.monotonic() - facts.now)


@asynccontextmanager
async def beats(here: World, tmp_path: Path) -> AsyncIterator[tuple[Heard, Path]]:
    """A real AgentServer on this loop, and ten ranks in another process that beat to it."""
    heard = Heard()
    server = AgentServer(
        [UnixTarget(tmp_path / "agent.sock")],
        {TOKEN: Admission("w", "w-1")}.get,
        heard.on_beat,
        SystemClock(),
        on_refused=heard.refused.append,
    )
    await server.start()
    told = tmp_path / "told"
    env = {**BASE_ENV, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    address = server.listening[0].address
    argv = [sys.executable, str(beat_flood.__file__), address, TOKEN, str(told)]
    flood = await here.start(LaunchSpec(argv, env))
    try:
        await until(lambda: heard.beats >= beat_flood.RANKS)
        heard.latest = 0.0  # the first ones waited for the connection
        yield heard, told
        assert alive(flood)
    finally:
        send(flood, signal.SIGKILL)
        await server.stop()
    assert heard.refused == []


async def _cycle(here: World, spec: LaunchSpec) -> float:
    """One life; how long its start took."""
    begin = time.monotonic()
    process = await here.start(spec, PATIENCE)
    took = time.monotonic() - begin
    assert Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n"
    assert send(process, signal.SIGKILL)
    assert await here.exit_of(process) == Exit(signal=signal.SIGKILL)
    here.started.remove(process)
    return took


async def _stuck(here: World, tmp_path: Path) -> asyncio.Task[object]:
    """A start whose exec waits for a file that another process does not let go."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    await here.python(HOLD_LEASE, str(program), str(tmp_path / "held"))
    await text_of(tmp_path / "held")
    return asyncio.create_task(here.start(LaunchSpec([str(program)], BASE_ENV), 600.0))


def _faulty(tmp_path: Path) -> list[tuple[LaunchSpec, str]]:
    plain, lost = tmp_path / "plain", tmp_path / "lost"
    plain.write_text("x")
    lost.write_text("#!/nowhere/interpreter\n")
    lost.chmod(0o755)
    true = ["/bin/true"]
    return [
        (LaunchSpec(["/nowhere/x"], BASE_ENV), "No such file or directory (ENOENT)"),
        (LaunchSpec([str(plain)], BASE_ENV), "Permission denied (EACCES)"),
        (LaunchSpec([str(lost)], BASE_ENV), "the interpreter that it names is not"),
        (LaunchSpec(true, BASE_ENV, cwd="/nowhere/d"), "No such file or directory (ENOENT)"),
        (LaunchSpec(true, BASE_ENV, user="no-such-user"), "no such user"),
    ]


async def _fail_all(here: World, faulty: list[tuple[LaunchSpec, str]]) -> None:
    for spec, text in faulty:
        with pytest.raises(SpawnFailed) as caught:
            await here.start(spec, PATIENCE)
        assert text in str(caught.value)


@pytest.mark.timeout(240)
def test_o_grpc_3_five_hundred_restarts_hold_up_no_beat(tmp_path: Path) -> None:
    """Three at a time, one start stuck for the whole time, and faulty ones in between."""

    async def story() -> None:
        async with world() as here, beats(here, tmp_path) as (heard, told):
            stuck = await _stuck(here, tmp_path)
            output = tmp_path / "output"
            spec = LaunchSpec(["/bin/sleep", "600"], BASE_ENV, stdout_path=str(output))
            places = asyncio.Semaphore(AT_ONCE)

            async def one(number: int) -> float:
                async with places:
                    if number % 100 == 50:
                        await _fail_all(here, _faulty(tmp_path))
                    return await _cycle(here, spec)

            before = heard.beats
            begin = time.monotonic()
            starts = sorted(await asyncio.gather(*map(one, range(CYCLES))))
            seconds = time.monotonic() - begin
            assert len(starts) == CYCLES  # none hung
            assert starts[CYCLES // 2] < 2.0
            assert not stuck.done()
            stuck.cancel()
            late, _ = map(float, (await text_of(told)).split())
            # What the machine kept from the other process as well is not our delay.
            assert heard.latest < 1.0 + late
            rate = beat_flood.RANKS / beat_flood.INTERVAL
            assert heard.beats - before > 0.5 * rate * (seconds / (1.0 + late))
            assert output.read_bytes() == b""  # no warnings of gRPC's about forks
            print(f"{seconds:.1f} s, longest start {starts[-1]:.2f}, latest {heard.latest:.3f}")

    run(story())


def test_the_lease_of_a_stuck_start_is_real(tmp_path: Path) -> None:
    """Else the test above would prove nothing."""

    async def story() -> None:
        async with world() as here:
            stuck = await _stuck(here, tmp_path)
            await until(lambda: _lease_is_asked_for(tmp_path / "program"))
            assert not stuck.done()
            stuck.cancel()

    run(story())


def _lease_is_asked_for(program: Path) -> bool:
    inode = f":{program.stat().st_ino} "
    locks = Path("/proc/locks").read_text().splitlines()
    return any(inode in line and "BREAKING" in line for line in locks)
