"""Agents whose supervisor comes and goes: real stub processes and a server that takes beats."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from stepwarden.clock import SystemClock
from stepwarden.core.heartbeat import BeatFacts
from stepwarden.edge.agent_service import Admission, AgentServer
from stepwarden.edge.listen import Target
from stepwarden_proto import page

from support.stub_control import STUB_COMMAND, StubControl

TOKENS = {"token-of-uds": Admission("uds", "uds.1"), "token-of-tcp": Admission("tcp", "tcp.1")}


class Beats:
    """An AgentServer in a thread of its own, and every beat that arrived, with its time."""

    def __init__(self, targets: list[Target]) -> None:
        self.arrived: list[tuple[float, str, BeatFacts]] = []
        self.listening_since = 0.0
        self._targets = targets
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server: AgentServer | None = None

    def up(self) -> None:
        """Listen, as a supervisor that has just started."""
        self._server = AgentServer(self._targets, TOKENS.get, self._on_beat, SystemClock())
        self._do(self._server.start())
        self.listening_since = time.monotonic()

    def down(self) -> None:
        """Be gone, sockets and all."""
        if self._server is not None:
            self._do(self._server.stop())
            self._server = None

    def close(self) -> None:
        """End the thread."""
        self.down()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def of(self, worker: str, since: float) -> list[tuple[float, BeatFacts]]:
        """Beats of one worker that arrived from `since` on."""
        return [(at, facts) for at, name, facts in self.arrived if name == worker and at >= since]

    def _on_beat(self, worker: str, _incarnation: str, facts: BeatFacts, now: float) -> None:
        self.arrived.append((now, worker, facts))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)


class LoneAgent:
    """A stub worker that was told of a supervisor at `target` and steps four times a second."""

    def __init__(
        self, directory: Path, name: str, target: str, environment: dict[str, str]
    ) -> None:
        self.directory = directory / name
        self.directory.mkdir()
        pages = self.directory / "pages"
        pages.mkdir(mode=0o700)
        told = {
            page.ENV_WORKER: name,
            page.ENV_INCARNATION: f"{name}.1",
            page.ENV_TARGET: target,
            page.ENV_TOKEN: f"token-of-{name}",
            page.ENV_PAGE_DIR: str(pages),
            page.ENV_INTERVAL: "0.5",
            "STUB_DIR": str(self.directory),
            "STUB_SCRIPT": "attach; step 4",
        }
        self.errors = self.directory / "stderr"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(STUB_COMMAND, env=environment | told, stderr=errors)
        self.control = StubControl(self.directory)

    def end(self) -> None:
        self.process.kill()
        self.process.wait(10)


def agent_environment() -> dict[str, str]:
    """Ours, with absolute paths for imports and without any supervisor."""
    paths = ":".join(os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(":") if p)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("STEPWARDEN_")}
    return kept | {"PYTHONPATH": paths}
