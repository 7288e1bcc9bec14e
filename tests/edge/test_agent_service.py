from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from stepwarden.core.heartbeat import BeatFacts
from stepwarden.edge import agent_service
from stepwarden.edge.agent_service import Admission, AgentServer, Refusal
from stepwarden.edge.beat_decoder import BeatDecoder
from stepwarden.edge.host import this_host
from stepwarden.edge.listen import Target, TcpTarget, UnixTarget
from stepwarden_proto.channel import CLIENT_OPTIONS, MAX_BEAT_BYTES
from stepwarden_proto.page import TOKEN_METADATA_KEY
from stepwarden_proto.v1 import agent_pb2 as pb
from stepwarden_proto.v1 import agent_pb2_grpc as rpc
from support.clocks import FakeClock

LIMIT = 20.0


class Supervisor:
    """What the daemon does with an AgentServer: it knows tokens and keeps what arrives."""

    def __init__(self, directory: Path) -> None:
        self.tokens = {"s3cret": Admission("w", "inc-1"), "0ther": Admission("v", "inc-7")}
        self.beats: list[tuple[str, str, BeatFacts, float]] = []
        self.refusals: list[Refusal] = []
        self.clock = FakeClock()
        self.broken_ranks: set[str] = set()
        targets: list[Target] = [UnixTarget(directory / "agent.sock"), TcpTarget("127.0.0.1", 0)]
        self.server = AgentServer(
            targets,
            self.tokens.get,
            self.on_beat,
            self.clock,
            on_refused=self.refusals.append,
        )

    def on_beat(self, worker: str, incarnation: str, facts: BeatFacts, now: float) -> None:
        if facts.rank in self.broken_ranks:
            raise RuntimeError("no idea")
        self.beats.append((worker, incarnation, facts, now))


@asynccontextmanager
async def channel_to(address: str) -> AsyncIterator[Any]:
    async with grpc.aio.insecure_channel(address, options=CLIENT_OPTIONS) as channel:
        make: Any = rpc.AgentServiceStub
        yield make(channel)


def with_supervisor(tmp_path: Path, story: Callable[[Supervisor, Any], Awaitable[None]]) -> None:
    async def main() -> None:
        supervisor = Supervisor(tmp_path)
        await supervisor.server.start()
        try:
            async with channel_to(supervisor.server.listening[0].address) as stub:
                await asyncio.wait_for(story(supervisor, stub), 60.0)
        finally:
            await supervisor.server.stop()

    asyncio.run(main())


def attach(stub: Any, token: str | None = "s3cret") -> Any:
    metadata = () if token is None else ((TOKEN_METADATA_KEY, token),)
    return stub.Attach(metadata=metadata, timeout=LIMIT)


def beat(**more: Any) -> pb.Beat:
    return pb.Beat(**{"worker": "w", "incarnation": "inc-1", "rank": "0", "seq": 1, **more})


async def tell(call: Any, message: pb.Beat) -> int:
    await call.write(message)
    return int((await call.read()).seq)


async def refused(call: Any, message: pb.Beat) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await tell(call, message)
    return caught.value.code(), caught.value.details() or ""


def test_each_beat_is_handed_on_and_acknowledged(tmp_path: Path) -> None:
    async def story(supervisor: Supervisor, stub: Any) -> None:
        call = attach(stub)
        for seq in (1, 2, 9):
            supervisor.clock.advance(1.0)
            assert await tell(call, beat(seq=seq)) == seq
        await call.done_writing()
        assert [b[2].seq for b in supervisor.beats] == [1, 2, 9]
        assert supervisor.beats[0][:2] == ("w", "inc-1")
        assert [b[3] for b in supervisor.beats] == [1001.0, 1002.0, 1003.0]

    with_supervisor(tmp_path, story)


def test_tcp_serves_too_and_a_proxy_in_the_environment_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O-GRPC-2, the side of the supervisor."""
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    async def story(supervisor: Supervisor, _stub: Any) -> None:
        port = supervisor.server.listening[1].port
        for host in ("127.0.0.1", "localhost"):
            async with channel_to(f"{host}:{port}") as stub:
                assert await tell(attach(stub), beat()) == 1

    with_supervisor(tmp_path, story)


@pytest.mark.parametrize(
    ("token", "code"),
    [
        (None, grpc.StatusCode.UNAUTHENTICATED),
        ("", grpc.StatusCode.PERMISSION_DENIED),
        ("guess", grpc.StatusCode.PERMISSION_DENIED),
        ("0ther", grpc.StatusCode.PERMISSION_DENIED),  # a good token, another worker's
    ],
)
def test_without_the_right_token_nothing_is_believed(
    tmp_path: Path, token: str | None, code: grpc.StatusCode
) -> None:
    async def story(supervisor: Supervisor, stub: Any) -> None:
        found, text = await refused(attach(stub, token), beat())
        assert found is code
        assert not token or token not in text
        assert supervisor.beats == []
        assert supervisor.server.refused == 1
        assert len(supervisor.refusals) == 1
        assert await tell(attach(stub), beat()) == 1

    with_supervisor(tmp_path, story)


def test_an_open_stream_ends_with_its_token(tmp_path: Path) -> None:
    async def story(supervisor: Supervisor, stub: Any) -> None:
        call = attach(stub)
        assert await tell(call, beat()) == 1
        del supervisor.tokens["s3cret"]
        assert (await refused(call, beat(seq=2)))[0] is grpc.StatusCode.PERMISSION_DENIED
        assert len(supervisor.beats) == 1

    with_supervisor(tmp_path, story)


@pytest.mark.parametrize(
    "wrong", [{"worker": "v"}, {"incarnation": "inc-0"}, {"worker": "x" * 999}]
)
def test_a_message_that_names_another_than_its_token_is_reported(
    tmp_path: Path, wrong: dict[str, str]
) -> None:
    async def story(supervisor: Supervisor, stub: Any) -> None:
        assert (await refused(attach(stub), beat(**wrong)))[0] is grpc.StatusCode.PERMISSION_DENIED
        assert supervisor.refusals[0].worker == "w"
        assert supervisor.beats == []

    with_supervisor(tmp_path, story)


@pytest.mark.parametrize("rank", ["", "a" * 65, "../etc", "a/b", "-a", "é", "a\0b", "a b"])
def test_a_rank_name_out_of_bounds_is_an_invalid_argument(tmp_path: Path, rank: str) -> None:
    async def story(supervisor: Supervisor, stub: Any) -> None:
        assert (await refused(attach(stub), beat(rank=rank)))[0] is grpc.StatusCode.INVALID_ARGUMENT
        assert supervisor.beats == []
        assert await tell(attach(stub), beat(rank="dp0.tp-1_x")) == 1

    with_supervisor(tmp_path, story)


def test_o_grpc_5_an_oversize_beat_is_refused_and_the_next_one_accepted(tmp_path: Path) -> None:
    async def story(supervisor: Supervisor, stub: Any) -> None:
        other = attach(stub)
        assert await tell(other, beat(rank="1")) == 1
        code, _ = await refused(attach(stub), beat(detail="x" * 5_000_000))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await tell(attach(stub), beat(detail="x" * (MAX_BEAT_BYTES - 1000))) == 1
        assert len(supervisor.beats[-1][2].detail) == 4096
        assert await tell(other, beat(rank="1", seq=2)) == 2

    with_supervisor(tmp_path, story)


def test_a_message_that_is_no_beat_harms_no_other_stream(tmp_path: Path) -> None:
    async def story(supervisor: Supervisor, stub: Any) -> None:
        other = attach(stub)
        assert await tell(other, beat()) == 1
        address = supervisor.server.listening[0].address
        async with grpc.aio.insecure_channel(address) as channel:
            anything: Any = channel
            raw = anything.stream_stream("/stepwarden.v1.AgentService/Attach")
            call = raw(metadata=((TOKEN_METADATA_KEY, "s3cret"),), timeout=LIMIT)
            await call.write(b"\xff\xff\xff")
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert await tell(other, beat(seq=2)) == 2

    with_supervisor(tmp_path, story)


def test_a_beat_that_breaks_the_handler_is_reported_and_the_stream_goes_on(tmp_path: Path) -> None:
    async def story(supervisor: Supervisor, stub: Any) -> None:
        supervisor.broken_ranks.add("bad")
        call = attach(stub)
        for seq in range(1, 6):
            assert await tell(call, beat(rank="bad", seq=seq)) == seq
        assert await tell(call, beat(rank="good")) == 1
        assert supervisor.server.refused == 5
        # One report, then silence, then one that says how many there were.
        assert [(r.rank, r.count) for r in supervisor.refusals] == [("bad", 1)]
        assert "RuntimeError: no idea" in supervisor.refusals[0].reason
        supervisor.clock.advance(11.0)
        assert await tell(call, beat(rank="bad", seq=9)) == 9
        assert supervisor.refusals[-1].count == 5

    with_supervisor(tmp_path, story)


def test_clients_that_vanish_leave_no_noise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(supervisor: Supervisor, stub: Any) -> None:
        for seq in range(20):
            call = attach(stub)
            await call.write(beat(seq=seq))
            call.cancel()
        async with channel_to(supervisor.server.listening[0].address) as leaving:
            await attach(leaving).write(beat())
        assert await tell(attach(stub), beat(seq=99)) == 99

    with_supervisor(tmp_path, story)
    assert caplog.records == []


def test_a_stopped_server_can_be_followed_by_another(tmp_path: Path) -> None:
    """The socket is gone after stop, and a channel that was open finds the next one."""

    async def main() -> None:
        first = Supervisor(tmp_path)
        await first.server.start()
        address = first.server.listening[0].address
        async with channel_to(address) as stub:
            assert await tell(attach(stub), beat()) == 1
            await first.server.stop()
            assert not (tmp_path / "agent.sock").exists()
            second = Supervisor(tmp_path)
            await second.server.start()
            call = stub.Attach(
                metadata=((TOKEN_METADATA_KEY, "s3cret"),), timeout=LIMIT, wait_for_ready=True
            )
            assert await tell(call, beat(seq=2)) == 2
            await second.server.stop()

    asyncio.run(main())


def test_everything_in_a_beat_arrives() -> None:
    message = beat(
        seq=3,
        reason=pb.BEAT_REASON_BYE,
        pid=77,
        start_ticks=1234,
        clock=pb.ClockStamp(now_ns=10**10, boot_id="b", time_namespace=5),
        phase=pb.PHASE_DECODE,
        phase_since_ns=9 * 10**9,
        steps_begun=8,
        steps_ended=7,
        oldest=pb.OpenStep(
            number=8, begin_ns=95 * 10**8, num_seqs=4, num_tokens=-1, phase=pb.PHASE_DECODE
        ),
        in_flight=1,
        cpu_seconds=1.5,
        rss_bytes=1 << 40,
        lease=pb.Lease(name="n" * 100, begin_ns=10**9, seconds=60.0),
        work=pb.Work(unfinished=2, since_ns=10**9, loop_turns=6, loop_ns=2 * 10**9),
        page="0.77.page",
        agent_version="1" * 100,
        detail="é" * 5000,
        engine="vllm",
        engine_version="0.33.0",
        model="m" * 5000,
        dtype="bfloat16",
    )
    facts = BeatDecoder("b", 5).decode(message)
    assert facts.own_clock
    assert (facts.seq, facts.pid, facts.start_ticks, facts.bye) == (3, 77, 1234, True)
    assert (facts.now, facts.phase, facts.phase_since) == (10.0, "decode", 9.0)
    assert facts.oldest is not None
    assert (facts.oldest.number, facts.oldest.begin, facts.oldest.phase) == (8, 9.5, "decode")
    assert (facts.oldest.num_seqs, facts.oldest.num_tokens) == (4, -1)
    assert facts.lease is not None
    assert (len(facts.lease.name), facts.lease.begin, facts.lease.seconds) == (64, 1.0, 60.0)
    assert facts.work is not None
    assert (facts.work.unfinished, facts.work.since, facts.work.loop_at) == (2, 1.0, 2.0)
    assert (facts.cpu_seconds, facts.rss_bytes, facts.page) == (1.5, 1 << 40, "0.77.page")
    assert (len(facts.agent_version), len(facts.detail.encode())) == (64, 4096)
    assert (facts.engine, facts.engine_version, facts.dtype) == ("vllm", "0.33.0", "bfloat16")
    assert len(facts.model) == 256


def test_what_a_beat_leaves_out_is_unknown() -> None:
    facts = BeatDecoder("b", 5).decode(pb.Beat(phase=99))  # type: ignore[arg-type]
    assert (facts.cpu_seconds, facts.rss_bytes, facts.oldest, facts.lease, facts.work) == (
        (None,) * 5
    )
    assert facts.phase == "unknown"
    assert not facts.own_clock


@pytest.mark.parametrize(("boot", "namespace"), [("b", 6), ("c", 5), ("", 5)])
def test_another_boot_or_time_namespace_is_a_foreign_clock(boot: str, namespace: int) -> None:
    message = pb.Beat(clock=pb.ClockStamp(boot_id=boot, time_namespace=namespace))
    assert not BeatDecoder("b", 5).decode(message).own_clock
    assert not BeatDecoder("", 5).decode(message).own_clock


def test_our_own_boot_and_namespace_are_our_own_clock() -> None:
    clock = pb.ClockStamp(boot_id=this_host().boot, time_namespace=this_host().time_namespace)
    assert BeatDecoder().decode(pb.Beat(clock=clock)).own_clock


def test_stopping_ends_open_streams_and_leaves_no_line_in_the_engines_log(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(agent_service, "_STOP_SECONDS", LIMIT)

    async def main() -> None:
        supervisor = Supervisor(tmp_path)
        await supervisor.server.start()
        async with channel_to(supervisor.server.listening[0].address) as stub:
            calls = [attach(stub) for _ in range(20)]
            for call in calls:
                assert await tell(call, beat()) == 1
            await supervisor.server.stop()
            for call in calls:
                assert await call.code() is grpc.StatusCode.UNAVAILABLE

    asyncio.run(main())
    assert caplog.records == []
    assert "goaway" not in capfd.readouterr().err
