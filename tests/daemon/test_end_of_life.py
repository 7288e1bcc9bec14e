"""An ending goes on where it failed: what was done once is not done again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from jeepney import Message, new_error
from stepwarden.daemon import pauses, systemd_runner
from stepwarden.daemon.runners import SYSTEMD
from support.fake_bus import answering, listening
from support.one_worker import stage
from support.process_world import until

FILE = """
supervisor: {{runtime_dir: {0}, state_dir: {0}}}
workers:
  w:
    agent: none
    command: [sleep, "600"]
    stop: {{command: [/bin/sh, -c, "echo stopped >> {0}/stops"]}}
"""


class HungSystemd:
    """Takes the order to start a unit, and from then on nobody answers, until it wakes up."""

    def __init__(self) -> None:
        self.starts = 0
        self.tries = 0
        self.hangs = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.tries += 1
        if not self.hangs:
            await answering(self._answer)(reader, writer)

    def _answer(self, message: Message) -> list[Message]:
        if message.header.fields[3] == "StartTransientUnit":
            self.starts += 1
            self.hangs = True
            return []
        return [new_error(message, "org.freedesktop.systemd1.NoSuchUnit", "s", ("not loaded",))]


def test_a_unit_that_cannot_be_let_go_of_runs_the_stop_command_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bus hangs while the unit is being started; nothing begins before it is let go of."""
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/bus")
    monkeypatch.setattr(systemd_runner, "START_LIMIT_SECONDS", 0.3)
    monkeypatch.setattr(pauses, "FIRST_SECONDS", 0.01)
    monkeypatch.setattr(pauses, "MOST_SECONDS", 0.05)

    async def story() -> None:
        systemd = HungSystemd()
        async with listening(tmp_path, systemd.serve), stage(tmp_path, FILE) as here:
            here.machine.runners.preferred = SYSTEMD
            here.begin()
            await until(lambda: "no answer to StartTransientUnit" in here.failure())
            tries = systemd.tries
            ending = asyncio.ensure_future(here.end())
            await until(lambda: systemd.tries >= tries + 5)
            assert not ending.done()
            assert (tmp_path / "stops").read_text() == "stopped\n"
            systemd.hangs = False
            await ending
            assert (tmp_path / "stops").read_text() == "stopped\n"
            assert systemd.starts == 1
            told = [text for text in here.told() if text.startswith("ending it failed")]
            assert len(told) == 1
            assert "systemd does not forget unit" in told[0]
            await here.machine.runners.close()
            await here.machine.host.close()

    asyncio.run(story())


def test_a_stop_command_that_fails_by_our_own_fault_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with stage(tmp_path, FILE) as here:
            runs: list[object] = []

            async def failing(*given: object) -> object:
                runs.append(given)
                raise RuntimeError("a fault")

            monkeypatch.setattr(here.machine.starter, "run", failing)
            here.begin()
            await until(here.running)
            await here.end()
            assert len(runs) == 1
            assert "stop command failed by a fault of ours: RuntimeError: a fault" in here.told()

    asyncio.run(story())
