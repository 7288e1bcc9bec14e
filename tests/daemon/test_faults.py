"""What hangs or fails on the way of a life leaves its worker in no state for ever."""

from __future__ import annotations

import asyncio
import errno
import subprocess
import threading
from pathlib import Path

import pytest
from stepwarden.clock import SystemClock
from stepwarden.config import load
from stepwarden.core.evidence import Exit, ProcessId
from stepwarden.core.worker import WorkerState
from stepwarden.daemon import exits, pauses, starting
from stepwarden.daemon.adoption import TrustedUsers
from stepwarden.daemon.assembly import Machine
from stepwarden.daemon.exits import Exits
from stepwarden.daemon.life import Life
from stepwarden.daemon.runners import SPAWN
from stepwarden.daemon.unit import Unit
from stepwarden.edge import users
from stepwarden.edge.exit_watch import ExitWatch
from stepwarden.edge.listen import UnixTarget
from stepwarden.edge.page_reader import PageReader
from stepwarden.edge.process_probe import identify
from stepwarden.edge.state_records import LifeRecord
from support.one_worker import FILE, stage
from support.process_world import until

CLOCK = SystemClock()


def test_an_end_that_fails_after_the_burial_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pauses, "FIRST_SECONDS", 0.01)

    async def story() -> None:
        async with stage(tmp_path) as here:
            forget, failures = here.machine.endings.forget, [RuntimeError("a fault")]

            async def failing(record: LifeRecord) -> None:
                if failures:
                    raise failures.pop()
                await forget(record)

            monkeypatch.setattr(here.machine.endings, "forget", failing)
            here.begin()
            await until(here.running)
            await here.end()
            assert "ending it failed, tried again: RuntimeError: a fault" in here.told()
            assert here.reports.store.lives() == []

    asyncio.run(story())


def test_a_start_that_fails_by_our_own_fault_is_a_failed_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a worker that is held would be so for ever."""

    def failing(_: Unit) -> str:
        raise RuntimeError("a fault")

    async def story() -> None:
        async with stage(tmp_path) as here:
            monkeypatch.setattr(here.machine.holds, "reason", failing)
            here.begin()
            await until(lambda: here.failure() == "a fault of ours: RuntimeError: a fault")
            await here.end()

    asyncio.run(story())


def test_a_start_that_fails_by_our_own_fault_leaves_no_control_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups = tmp_path / "groups"
    groups.mkdir()

    async def failing(*_: object) -> None:
        assert list(groups.iterdir())
        raise RuntimeError("a fault")

    async def story() -> None:
        async with stage(tmp_path) as here:
            runner = here.machine.runners.by_kind(SPAWN)
            monkeypatch.setattr(runner, "_cgroups", groups)
            monkeypatch.setattr(runner, "start", failing)
            here.begin()
            await until(lambda: here.failure() == "a fault of ours: RuntimeError: a fault")
            assert list(groups.iterdir()) == []
            await here.end()

    asyncio.run(story())


def test_a_user_database_that_hangs_costs_one_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor may the stop of that worker wait for it, or the end of the daemon."""
    answer = threading.Event()
    monkeypatch.setattr(users, "LOOK_UP_SECONDS", 0.05)

    async def story() -> None:
        async with stage(tmp_path) as here:
            monkeypatch.setattr(users, "user_of", lambda *_: answer.wait())
            here.run_as("nobody")
            here.begin()
            await until(lambda: here.failure().startswith("cannot look up user"))
            await here.end()

    try:
        asyncio.run(story())
    finally:
        answer.set()


def test_a_start_that_waits_for_lives_of_nobody_says_so_and_its_clocks_begin_later(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with stage(tmp_path) as here:
            over = asyncio.Event()

            async def ending() -> None:
                await over.wait()

            here.machine.starter.nobodys.append(here.machine.tasks.start(ending()))
            here.begin()
            life = here.unit.life
            assert life is not None
            await until(lambda: "not configured any more" in life.held)
            over.set()
            await until(here.running)
            assert life.held == ""
            assert life.began_at is not None
            await here.end()

    asyncio.run(story())


def test_a_main_that_could_not_be_watched_is_watched_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an agent nothing else would tell of its end."""
    add, failures = ExitWatch.add, [OSError(errno.EMFILE, "no descriptor is left")]

    def failing(watch: ExitWatch, process: ProcessId, *rest: object) -> bool:
        if failures:
            raise failures.pop()
        return add(watch, process, *rest)  # type: ignore[arg-type]  # handed on as they came

    async def nothing(_: Life) -> Exit | None:
        return None

    def ignore(_: Unit) -> None:
        """Nobody sleeps here."""

    async def story() -> None:
        (tmp_path / "f.yaml").write_text(FILE.format(tmp_path))
        unit = Unit(load(tmp_path / "f.yaml").workers["w"], WorkerState("w"))
        hears = Exits({"w": unit}, nothing, asyncio.get_running_loop().create_task, ignore, CLOCK)
        with subprocess.Popen(["sleep", "600"]) as process:
            life = Life("w", 1, "w.1.aa", tmp_path, PageReader(tmp_path, 0))
            life.main, unit.life = identify(process.pid), life
            hears.watch_main(unit, life)
            assert not failures
            process.kill()
            await until(lambda: life.exit is not None)
        hears.close()
        life.pages.close()

    monkeypatch.setattr(ExitWatch, "add", failing)
    monkeypatch.setattr(exits, "WATCH_AGAIN_SECONDS", 0.01)
    asyncio.run(story())


def test_a_user_database_that_hangs_holds_up_no_daemon_at_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sockets, and whom to believe that it is a worker of ours, are by user."""
    answer, ask = threading.Event(), users.user_of

    def hanging(user: str | None, group: str | None = None) -> users.Owner:
        if user == "slow":
            answer.wait()
        return ask(user, group)

    monkeypatch.setattr(users, "LOOK_UP_SECONDS", 0.2)
    monkeypatch.setattr(users, "user_of", hanging)
    text = FILE.replace("    agent: none\n", "    agent: none\n    user: slow\n")
    more = text + "  v: {{agent: none, user: '4711', command: [sleep, '600']}}\n"

    async def story() -> None:
        async with stage(tmp_path, more) as here:
            assert [target.owner for target in _owned(here.machine)] == [4711]
            configs = [unit.config for unit in here.machine.units.values()]
            trusted = TrustedUsers(configs, CLOCK).trusted
            assert trusted("v", 4711)
            assert not trusted("v", 4712)

    try:
        asyncio.run(story())
    finally:
        answer.set()


def _owned(machine: Machine) -> list[UnixTarget]:
    found = [target for target in machine.sockets.agents if isinstance(target, UnixTarget)]
    return [target for target in found if target.owner is not None]


def test_env_files_that_hang_hold_up_nobody_when_a_life_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = threading.Event()
    (tmp_path / "env").touch()
    text = FILE.replace("    agent: none\n", "    agent: none\n    env_file: {0}/env\n")

    async def story() -> None:
        async with stage(tmp_path, text) as here:
            here.begin()
            await until(here.running)
            life = here.unit.life
            assert life is not None
            life.config = None
            with monkeypatch.context() as hangs:
                hangs.setattr(starting, "at_start", lambda *_: answer.wait())
                hangs.setattr(starting, "READ_SECONDS", 0.1)
                await here.machine.starter.watch_again(here.unit, life)
            assert life.config is None
            (told,) = (text for text in here.told() if "from outside may be incomplete" in text)
            assert "cannot read what its configuration names" in told
            await here.machine.starter.watch_again(here.unit, life)
            assert life.config is not None
            await here.end()

    try:
        asyncio.run(story())
    finally:
        answer.set()
