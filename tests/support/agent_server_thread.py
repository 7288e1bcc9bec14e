"""A real AgentServer in a thread of this process, on a unix socket and a port of the loopback."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from stepwarden.clock import SystemClock
from stepwarden.core.heartbeat import BeatFacts
from stepwarden.edge.agent_service import Admission, AgentServer
from stepwarden.edge.listen import TcpTarget, UnixTarget


class AgentServerThread:
    """Takes every beat of worker w, life w-1, whatever the token."""

    def __init__(self) -> None:
        self.beats: list[BeatFacts] = []
        self.port = 0
        self.targets: list[str] = []
        self._folder = tempfile.TemporaryDirectory(prefix="sw-")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: AgentServer | None = None

    @property
    def streams(self) -> int:
        """Streams that are open now, as far as the server knows."""
        return 0 if self._server is None else len(self._server._streams)

    def __enter__(self) -> Self:
        self._thread.start()
        self._do(self._start)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._do(self._stop)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        self._folder.cleanup()

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

    def _do(self, work: Callable[[], object]) -> None:
        asyncio.run_coroutine_threadsafe(work(), self._loop).result(30)  # type: ignore[arg-type]
