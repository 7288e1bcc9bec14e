"""Servers of several addresses: looked up beside the loop, stopped in the middle of a start."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from stepwarden.edge import bound_servers
from stepwarden.edge.bound_servers import BoundServers
from stepwarden.edge.listen import LISTEN_OPTIONS, TcpTarget, UnixTarget, at_most
from stepwarden.errors import RefusedError
from support.clocks import FakeClock

CONNECTIONS = 3


def made() -> grpc.aio.Server:
    return grpc.aio.server(options=[*LISTEN_OPTIONS, *at_most(CONNECTIONS)])


class HangingNames:
    """A name server that answers when it is told to, as the loop's own lookups would see it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked, self.answer = threading.Event(), threading.Event()
        self._real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._look_up)

    def _look_up(self, *arguments: Any, **options: Any) -> Any:
        if arguments[0] == "localhost":
            self.asked.set()
            assert self.answer.wait(60)
        return self._real(*arguments, **options)


def test_a_name_server_that_hangs_does_not_hold_the_loop(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = HangingNames(monkeypatch)

    async def main() -> None:
        servers = BoundServers([TcpTarget("localhost", 0)], made, FakeClock())
        starting = asyncio.ensure_future(servers.start())
        await asyncio.get_running_loop().run_in_executor(None, names.asked.wait, 60)
        assert names.asked.is_set()
        assert not starting.done()  # and this loop turns, or we would not be here
        other = BoundServers([UnixTarget(tmp_path / "a")], made, FakeClock())
        await other.start()
        names.answer.set()
        await starting
        port = servers.listening[0].port
        socket.create_connection(("127.0.0.1", port), timeout=20).close()
        await servers.stop(0.0)
        await other.stop(0.0)

    asyncio.run(main())


def test_a_name_server_that_never_answers_is_told_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = HangingNames(monkeypatch)
    monkeypatch.setattr(bound_servers, "LOOK_UP_SECONDS", 0.05)

    async def main() -> None:
        servers = BoundServers([UnixTarget(tmp_path / "a")], made, FakeClock())
        await servers.start()
        for _ in range(2):
            with pytest.raises(RefusedError, match="cannot listen on localhost:0: no answer"):
                await servers.add([TcpTarget("localhost", 0)])
        # What needs no name goes on.
        await servers.add([UnixTarget(tmp_path / "b")])
        await servers.stop(0.0)

    try:
        asyncio.run(main())
    finally:
        names.answer.set()


class StoppedWhileItStarts:
    """A server that is stopped, with all others, while its own start is under way."""

    def __init__(self) -> None:
        self._real = made()
        self.servers: BoundServers | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def start(self) -> None:
        await self._real.start()
        assert self.servers is not None
        await self.servers.stop(0.0)


def test_a_server_that_is_stopped_while_it_starts_leaves_no_task(tmp_path: Path) -> None:
    async def main() -> None:
        server: Any = StoppedWhileItStarts()
        servers = BoundServers([UnixTarget(tmp_path / "a")], lambda: server, FakeClock())
        server.servers = servers
        await servers.start()
        mine = {task for task in asyncio.all_tasks() if "_follow" in repr(task)}
        assert mine == set()
        assert servers.listening == []

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_one_connection_too_many_is_closed_at_once(kind: str, tmp_path: Path) -> None:
    target = UnixTarget(tmp_path / "a") if kind == "unix" else TcpTarget("127.0.0.1", 0)

    def dialled(port: int) -> socket.socket:
        if isinstance(target, TcpTarget):
            return socket.create_connection(("127.0.0.1", port), timeout=20)
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(20)
        made.connect(str(target.path))
        return made

    def talk(port: int) -> None:
        """The server speaks first on each that it takes."""
        links = [dialled(port) for _ in range(CONNECTIONS)]
        assert all(link.recv(1) for link in links)
        with dialled(port) as rest:
            assert rest.recv(1) == b""
        for link in links:
            link.close()
        while True:  # until their places are free again
            with dialled(port) as again:
                if again.recv(1):
                    return

    async def main() -> None:
        servers = BoundServers([target], made, FakeClock())
        await servers.start()
        port = servers.listening[0].port
        await asyncio.get_running_loop().run_in_executor(None, talk, port)
        await servers.stop(0.0)

    asyncio.run(main())
