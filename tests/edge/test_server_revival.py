"""One call with a method that is no text ends a server of grpc.aio: another takes its place."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from stepwarden.edge import bound_servers
from stepwarden.edge.agent_service import Admission, AgentServer, Refusal
from stepwarden.edge.bound_servers import BoundServers
from stepwarden.edge.grpc_log import quiet_loop
from stepwarden.edge.listen import Target, TcpTarget, UnixTarget, listen
from stepwarden_agent.wire.call import Call
from stepwarden_proto.channel import CLIENT_OPTIONS
from stepwarden_proto.page import TOKEN_METADATA_KEY
from stepwarden_proto.v1 import agent_pb2 as pb
from stepwarden_proto.v1 import agent_pb2_grpc as rpc
from support.clocks import FakeClock
from support.daemon import free_port

PLACEHOLDER = "/placeholder"


def hostile() -> bytes:
    """A well-formed call of a method whose name is not UTF-8."""
    call = Call(PLACEHOLDER, "localhost", [])
    call.begin()
    return bytes(call.out).replace(PLACEHOLDER.encode(), b"/\xff" * (len(PLACEHOLDER) // 2))


def send(target: Target) -> None:
    """Send it, and wait until the server has done something about it."""
    if isinstance(target, UnixTarget):
        link = socket.socket(socket.AF_UNIX)
        link.connect(str(target.path))
    else:
        link = socket.create_connection((target.host, target.port))
    with link:
        link.settimeout(0.2)
        link.sendall(hostile())
        try:
            while link.recv(4096):
                continue
        except OSError:
            return


@pytest.fixture(scope="module", autouse=True)
def mortal(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips where this version of gRPC outlives such a call: then there is nothing to replace."""

    async def ends() -> bool:
        quiet_loop(asyncio.get_running_loop())
        server = grpc.aio.server()
        target = UnixTarget(tmp_path_factory.mktemp("mortal") / "a")
        listening = listen(server, target)
        await server.start()
        await asyncio.get_running_loop().run_in_executor(None, send, target)
        waiting = asyncio.ensure_future(server.wait_for_termination())
        await asyncio.wait({waiting}, timeout=3.0)
        ended = waiting.done()
        with suppress(Exception):
            await server.stop(0.0)
        await asyncio.wait({waiting}, timeout=3.0)
        listening.close()
        return ended

    if not asyncio.run(ends()):
        pytest.skip(f"grpcio {grpc.__version__} outlives a call whose method is no text")


async def beat(address: str, seq: int) -> int:
    """What an agent does: connects, again and again where it has to, and beats."""
    async with grpc.aio.insecure_channel(address, options=CLIENT_OPTIONS) as channel:
        make: Any = rpc.AgentServiceStub
        metadata = ((TOKEN_METADATA_KEY, "t"),)
        call = make(channel).Attach(metadata=metadata, timeout=30.0, wait_for_ready=True)
        await call.write(pb.Beat(worker="w", incarnation="i", rank="0", seq=seq))
        return int((await call.read()).seq)


async def patiently(address: str, seq: int) -> int:
    async with asyncio.timeout(30):
        while True:
            try:
                return await beat(address, seq)
            except grpc.aio.AioRpcError:  # the server ended under the call
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_agents_beat_again_after_a_call_that_ended_their_server(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = UnixTarget(tmp_path / "a") if kind == "unix" else TcpTarget("127.0.0.1", free_port())
    refusals: list[Refusal] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        quiet_loop(loop)
        admit = {"t": Admission("w", "i")}.get
        server = AgentServer(
            [target], admit, lambda *_: None, FakeClock(), on_refused=refusals.append
        )
        await server.start()
        address = server.listening[0].address
        descriptors = 0
        for seq in range(1, 9):
            assert await patiently(address, seq) == seq
            first = server.sockets.listening[0]
            await loop.run_in_executor(None, send, target)
            async with asyncio.timeout(30):
                while server.sockets.listening[0] is first:
                    await asyncio.sleep(0.01)
            descriptors = descriptors or len(os.listdir("/proc/self/fd"))
        assert await patiently(address, 9) == 9
        assert len(os.listdir("/proc/self/fd")) < descriptors + 15
        await server.stop()

    asyncio.run(main())
    (refusal,) = refusals  # the others of its kind are counted
    assert f"a call ended the server of {target}" in refusal.reason
    assert "Traceback" not in capfd.readouterr().err


def test_an_address_without_a_server_counts_as_lost_until_it_is_bound_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bound_servers, "REVIVE_SECONDS", 3600.0)
    target = UnixTarget(tmp_path / "a")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        quiet_loop(loop)
        told: list[str] = []
        servers = BoundServers([target], grpc.aio.server, FakeClock(), told.append)
        await servers.start()
        assert servers.lost() == []
        await loop.run_in_executor(None, send, target)
        async with asyncio.timeout(30):
            while not told:
                await asyncio.sleep(0.01)
        assert servers.lost() == [target]
        await servers.bind_again(target)
        assert servers.lost() == []
        await servers.stop(0.0)

    asyncio.run(main())


def test_an_address_that_was_added_later_gets_a_new_server_as_well(tmp_path: Path) -> None:
    first, later = UnixTarget(tmp_path / "a"), UnixTarget(tmp_path / "b")

    async def main() -> None:
        loop = asyncio.get_running_loop()
        quiet_loop(loop)
        told: list[str] = []
        servers = BoundServers([first], grpc.aio.server, FakeClock(), told.append)
        await servers.start()
        await servers.add([later])
        before = servers.listening[1]
        await loop.run_in_executor(None, send, later)
        async with asyncio.timeout(30):
            while servers.listening[1] is before:
                await asyncio.sleep(0.01)
        assert len(told) == 1
        await servers.stop(0.0)

    asyncio.run(main())
