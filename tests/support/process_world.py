"""A launcher and a reaper on a running loop, and waits for conditions of real processes."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from stepwarden.core.evidence import Exit, ProcessId
from stepwarden.edge.launcher import Launcher, LaunchSpec
from stepwarden.edge.process_probe import alive
from stepwarden.edge.reaper import Reaper
from stepwarden.edge.signals import send

PATIENCE = 30.0
PYTHON = [sys.executable, "-I", "-S"]
BASE_ENV = {"PATH": os.environ.get("PATH", os.defpath)}

HOLD_LEASE = """
import fcntl, os, signal, sys, time
signal.signal(signal.SIGIO, signal.SIG_IGN)
fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
open(sys.argv[2], "w").write("held\\n")
time.sleep(600)
"""
"""Run with FILE TOLD: holds a write lease on FILE, so that nobody can execute or open it."""


class World:
    """What a test with real processes needs; everything that it started ends with it."""

    def __init__(self) -> None:
        self.exits: dict[int, Exit] = {}
        self.loop = asyncio.get_running_loop()
        self.on_exit: Callable[[int, Exit], None] = self.exits.__setitem__
        self.reaper = Reaper(self._note)
        self.launcher = Launcher()
        self.started: list[ProcessId] = []

    def _note(self, pid: int, how: Exit) -> None:
        self.on_exit(pid, how)

    async def python(self, code: str, *args: str, **env: str) -> ProcessId:
        """Start a small Python program."""
        return await self.start(LaunchSpec([*PYTHON, "-c", code, *args], {**BASE_ENV, **env}))

    async def start(self, spec: LaunchSpec, limit: float = PATIENCE) -> ProcessId:
        """Start anything."""
        process = await self.launcher.spawn(spec, limit)
        self.started.append(process)
        return process

    async def exit_of(self, process: ProcessId) -> Exit:
        """Wait until it is reaped."""
        await until(lambda: self.reaper.exit_of(process) is not None)
        how = self.reaper.exit_of(process)
        assert how is not None
        return how


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    """A started world."""
    made = World()
    made.reaper.start()
    await made.launcher.start()
    try:
        yield made
    finally:
        for process in made.started:
            send(process, signal.SIGKILL)
        await until(lambda: not any(map(alive, made.started)))
        await made.launcher.close()
        made.reaper.stop()
        ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)  # no subreaper for the tests that come after


def run(story: Coroutine[Any, Any, None]) -> None:
    """Run one story on a loop of its own."""
    asyncio.run(story)


async def until(condition: Callable[[], bool], patience: float = PATIENCE) -> None:
    """Wait for a condition while the loop runs on."""
    give_up = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < give_up, "the condition did not come about"
        await asyncio.sleep(0.01)


async def text_of(path: Path) -> str:
    """Wait until a program has written a whole line to `path`."""
    await until(lambda: path.exists() and path.read_text().endswith("\n"))
    return path.read_text().strip()
