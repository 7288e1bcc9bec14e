"""A real AgentServer in a thread of this process, on a unix socket and a port of the loopback."""

from __future__ import annotations

import tempfile
from pathlib import Path

from stepwarden.clock import SystemClock
from stepwarden.core.heartbeat import BeatFacts
from stepwarden.edge.agent_service import Admission, AgentServer
from stepwarden.edge.listen import TcpTarget, UnixTarget

from support.loop_thread import LoopThread


class AgentServerThread(LoopThread):
    """Takes every beat of worker w, life w-1, whatever the token."""

    def __init__(self) -> None:
        super().__init__()
        self.beats: list[BeatFacts] = []
        self.port = 0
        self.targets: list[str] = []
        self._folder = tempfile.TemporaryDirectory(prefix="sw-")
        self._server: AgentServer | None = None

    @property
    def streams(self) -> int:
        """Streams that are open now, as far as the server knows."""
        return 0 if self._server is None else len(self._server._streams)

    async def _start(self) -> None:
        socket = Path(self._folder.name) / "agent.sock"
        self._server = AgentServer(
            [UnixTarget(socket), TcpTarget("127.0.0.1", 0)],
            lambda _: Admission("w", "w-1"),
            lambda _worker, _life, facts, _now: self.beats.append(facts),
            SystemClock(),
        )
        await self._server.start()
        self.port = self._server.listening[1].port
        self.targets = [listening.address for listening in self._server.listening]

    async def _stop(self) -> None:
        assert self._server is not None
        await self._server.stop()
        self._folder.cleanup()
