"""Beats made from real ones by a hundred thousand accidents, decoded and over a real connection.

Half of them are judged as messages, by the decoder and by everything behind it; half travel as
bytes to a real gRPC server, with real tokens and others. Some more are a connection's own bytes,
spoilt below gRPC.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message import DecodeError
from stepwarden.core.heartbeat import BeatFacts
from stepwarden.daemon import gather
from stepwarden.edge.agent_service import SERVICE, Admission, AgentServer, Refusal
from stepwarden.edge.beat_decoder import BeatDecoder
from stepwarden.edge.grpc_log import is_of_grpc
from stepwarden.edge.listen import UnixTarget
from stepwarden_agent.wire.call import Call
from stepwarden_proto.channel import CLIENT_OPTIONS, MAX_BEAT_BYTES
from stepwarden_proto.page import TOKEN_METADATA_KEY
from stepwarden_proto.ranks import RANK_NAME
from stepwarden_proto.v1 import agent_pb2 as pb
from support.clocks import FakeClock
from support.fuzz import FIXED_SEED, IN_SOAK, IN_TEST, Hunt, first_seed, mutated
from support.fuzzed_worker import FuzzedWorker, fuzzed_worker

TOKEN = "s3cret"
STREAMS = 8
LIMIT = 30.0
NUMBERS = (0, 1, -1, 63, 2**31, 2**62, 2**63 - 1, -(2**63))
REALS = (0.0, -1.0, 1e-300, 1e308, float("inf"), float("nan"))
TEXTS = ("", "0", "rank-1", "x" * 64, "x" * 65, "\0", "\n", "\u2028", "é" * 40, "../0", "-")


def real_beat(rng: Random) -> pb.Beat:
    """As agents send it, or as one with a fault might: whole, whatever its values."""

    def number() -> int:
        return rng.choice(NUMBERS)

    odd = rng.random() < 0.5
    now_ns = number() if odd else int(1e12) + rng.randrange(10**10)
    beat = pb.Beat(worker="w", incarnation="inc-1", rank=str(rng.randrange(4)), pid=7, seq=1)
    beat.seq = max(0, number()) if odd else rng.randrange(1, 10_000)
    beat.start_ticks = max(0, number()) if odd else 5
    beat.clock.CopyFrom(pb.ClockStamp(now_ns=now_ns, boot_id=rng.choice(("b", "", "x" * 100))))
    setattr(beat, "phase", rng.choice((0, 1, 3, 5, 99, -1)))  # noqa: B010 - no number is refused
    beat.phase_since_ns = number() if odd else now_ns
    if rng.random() < 0.6:
        step = pb.OpenStep(number=abs(number()), begin_ns=now_ns // 2, num_seqs=number())
        beat.oldest.CopyFrom(step)
    if rng.random() < 0.3:
        name = rng.choice(TEXTS) * rng.choice((1, 30))
        beat.lease.CopyFrom(pb.Lease(name=name, begin_ns=number(), seconds=rng.choice(REALS)))
    if rng.random() < 0.3:
        beat.work.CopyFrom(pb.Work(unfinished=number(), since_ns=number(), loop_ns=now_ns))
    if rng.random() < 0.5:
        beat.cpu_seconds = rng.choice(REALS)
    beat.steps_begun, beat.steps_ended = abs(number()), abs(number())
    beat.detail = rng.choice(TEXTS) * rng.choice((1, 100))
    if rng.random() < 0.1:
        beat.rank = rng.choice(TEXTS)
    if rng.random() < 0.05:
        beat.reason = pb.BEAT_REASON_BYE
    return beat


SAMPLES = [real_beat(Random(number)).SerializeToString() for number in range(200)]


def spoilt(rng: Random) -> bytes:
    if rng.random() < 0.5:
        return real_beat(rng).SerializeToString()
    return mutated(rng, SAMPLES, [bytes([0xFF]) * 9, b"\x0a\x7f", b"\x12\x00", b"\x80" * 11])


def hunt_messages(count: int, seed: int, directory: Path) -> Hunt:
    """The decoder, and what the daemon does with what it gives."""
    found, decoder = Hunt(count, seed), BeatDecoder("b", 0)
    taken: list[BeatFacts] = []

    def try_one(worker: FuzzedWorker, raw: bytes) -> None:
        with suppress(DecodeError):
            facts = decoder.decode(pb.Beat.FromString(raw))
            if RANK_NAME.fullmatch(facts.rank):  # the server lets no other through
                worker.take(facts)
                taken[:] = [facts]
        worker.turn()

    with fuzzed_worker(directory) as worker:
        worker.life.spawned_at = 900.0
        found.run(spoilt, lambda raw: try_one(worker, raw))
        assert taken
        assert worker.ended > 0
    return found


class Server:
    """A real server, and the daemon's end of it."""

    def __init__(self, directory: Path, worker: FuzzedWorker) -> None:
        self.worker = worker
        self.beats = 0
        self.refusals: list[Refusal] = []
        self.faults: list[Any] = []
        self.path = directory / "agent.sock"
        self.server = AgentServer(
            [UnixTarget(self.path)],
            {TOKEN: Admission("w", "inc-1")}.get,
            self._on_beat,
            FakeClock(),
            on_refused=self._on_refused,
        )

    def _on_beat(self, _worker: str, _incarnation: str, facts: BeatFacts, _now: float) -> None:
        self.beats += 1
        self.worker.take(facts)
        if self.beats % 20 == 0:
            self.worker.turn()

    def _on_fault(self, _: object, about: dict[str, Any]) -> None:
        if not is_of_grpc(about):
            self.faults.append(about)

    def _on_refused(self, refusal: Refusal) -> None:
        self.refusals.append(refusal)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_fault)
        await self.server.start()
        try:
            yield
        finally:
            await self.server.stop()
        assert self.faults == []
        assert [told for told in self.refusals if "could not be handled" in told.reason] == []


async def send_all(server: Server, hunt: Hunt) -> None:
    """Every input over one of STREAMS calls at a time; a call that is refused is made again."""
    numbers = iter(range(hunt.count))
    async with grpc.aio.insecure_channel(f"unix:{server.path}", options=CLIENT_OPTIONS) as channel:
        attach: Any = channel.stream_stream(f"/{SERVICE}/Attach", None, None)
        await asyncio.gather(*(send_some(attach, numbers, hunt) for _ in range(STREAMS)))


async def send_some(attach: Any, numbers: Any, hunt: Hunt) -> None:
    call: Any = None
    for number in numbers:
        rng = Random(hunt.seed + number)
        raw = spoilt(rng)
        if number == hunt.count // 5:
            hunt.look()
        if call is None:
            token = TOKEN if rng.random() < 0.98 else rng.choice(("", "other", "x" * 5000))
            metadata = ((TOKEN_METADATA_KEY, token),)
            call = attach(metadata=metadata, timeout=600.0, wait_for_ready=True)
        if rng.random() < 0.001:
            raw = raw.ljust(MAX_BEAT_BYTES + 1, b"\0")
        begin = time.monotonic()
        try:
            await call.write(raw)
            answer = await asyncio.wait_for(call.read(), LIMIT)
            assert isinstance(answer, bytes)
        except grpc.aio.AioRpcError as error:
            if error.code() not in REFUSALS:
                raise AssertionError(f"input {number} of STEPWARDEN_SEED={hunt.seed}") from error
            call = None
        except asyncio.InvalidStateError:
            call = None  # it had ended before this was written
        hunt.note(time.monotonic() - begin, number)
    if call is not None:
        call.cancel()


REFUSALS = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)


def hunt_wire(count: int, seed: int, directory: Path) -> Hunt:
    found = Hunt(count, seed)

    async def main() -> None:
        with fuzzed_worker(directory) as worker:
            server = Server(directory, worker)
            async with server.serving():
                await send_all(server, found)
            assert server.beats > count / 4
            assert server.refusals
            assert len(worker.life.ranks) <= gather.MAX_RANKS

    asyncio.run(main())
    return found


def connection_bytes() -> bytes:
    """What an agent sends on a connection: preface, settings, headers, two beats."""
    call = Call(f"/{SERVICE}/Attach", "localhost", [(TOKEN_METADATA_KEY, TOKEN)])
    call.begin()
    for raw in SAMPLES[:2]:
        call.send(raw)
    call.ping()
    return bytes(call.out)


def hunt_connections(count: int, seed: int, directory: Path) -> Hunt:
    """Bytes below gRPC: the server ends such a connection, or we do, and the next one works."""
    found, whole = Hunt(count, seed), connection_bytes()

    def speak(path: str, raw: bytes) -> None:
        with socket.socket(socket.AF_UNIX) as link, suppress(OSError):
            link.settimeout(0.02)
            link.connect(path)
            link.sendall(raw)
            while link.recv(4096):
                continue

    async def main() -> None:
        with fuzzed_worker(directory) as worker:
            server = Server(directory, worker)
            async with server.serving():
                loop = asyncio.get_running_loop()
                for number in range(count):
                    raw = mutated(Random(seed + number), [whole], [b"\0" * 9, b"\xff" * 9])
                    await loop.run_in_executor(None, speak, str(server.path), raw)
                before = server.beats
                await send_all(server, Hunt(20, FIXED_SEED))
                assert server.beats > before
                assert len(os.listdir("/proc/self/fd")) < 200

    asyncio.run(main())
    return found


def test_a_few_spoilt_beats(tmp_path: Path) -> None:
    hunt_messages(IN_TEST, FIXED_SEED, tmp_path)


def test_a_few_spoilt_beats_over_grpc(tmp_path: Path) -> None:
    hunt_wire(IN_TEST, FIXED_SEED, tmp_path)


def test_a_few_spoilt_connections(tmp_path: Path) -> None:
    hunt_connections(30, FIXED_SEED, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("hunt", [hunt_messages, hunt_wire, hunt_connections])
def test_a_hundred_thousand_spoilt_beats(
    hunt: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed, count = first_seed(), IN_SOAK // (100 if hunt is hunt_connections else 1)
    with capsys.disabled():
        print(f"\n{count} beats, {hunt.__name__}: STEPWARDEN_SEED={seed} makes them again")
    found = hunt(count, seed, tmp_path)
    if found.costs:
        # What travels is timed by the clock on the wall, and the machine may be busy.
        found.assert_steady(3.0)
