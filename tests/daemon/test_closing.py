"""The end of a daemon: every part is closed, and what is owed is done before."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from pathlib import Path

import pytest
from stepwarden.clock import SystemClock
from stepwarden.config import load
from stepwarden.core.event import Event
from stepwarden.core.evidence import Exit
from stepwarden.daemon.closing import close_all
from stepwarden.daemon.exits import Exits
from stepwarden.daemon.life import Life, RankMemory
from stepwarden.daemon.main import Daemon
from stepwarden.daemon.tasks import Tasks
from stepwarden.edge.page_reader import PageReader
from stepwarden.edge.process_probe import identify
from support.one_worker import FILE
from support.waiting import wait_for

CLOCK = SystemClock()


def threads() -> set[str]:
    return {thread.name.partition("_")[0] for thread in threading.enumerate()}


def test_a_part_that_cannot_be_closed_leaves_none_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "f.yaml").write_text(FILE.format(tmp_path))

    async def failing() -> None:
        raise RuntimeError("a fault")

    async def story() -> None:
        daemon = Daemon(load(tmp_path / "f.yaml"), CLOCK)
        monkeypatch.setattr(daemon._machine.admin, "stop", failing)
        await daemon._machine.store.durable()
        daemon._machine.store.copy_again()
        assert {"state", "state-copy"} <= threads()
        await daemon._close()

    asyncio.run(story())
    wait_for(lambda: not {"state", "state-copy"} & threads())
    assert "a part could not be closed" in capfd.readouterr().err


def test_the_rest_is_closed_before_a_cancellation_passes() -> None:
    closed: list[str] = []

    async def cancelled() -> None:
        raise asyncio.CancelledError

    async def last() -> None:
        closed.append("last")

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(close_all((cancelled, lambda: closed.append("plain"), last), print))
    assert closed == ["plain", "last"]


def test_what_is_owed_is_awaited_and_nothing_else() -> None:
    told: list[Event] = []
    done: list[str] = []

    async def owed() -> None:
        await asyncio.sleep(0.01)
        done.append("owed")

    async def story() -> None:
        tasks = Tasks(told.append)
        tasks.start_owed(owed())
        endless = tasks.start(asyncio.Event().wait())  # type: ignore[arg-type]  # its value is nobody's
        await tasks.finish(30.0)
        assert done == ["owed"]
        endless.cancel()
        await tasks.finish(0.0)

    asyncio.run(story())
    assert told == []


def pidfds() -> int:
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:  # of the listing itself
            continue
    return sum("pidfd" in link for link in links)


def test_a_rank_that_gave_its_place_to_another_is_watched_no_longer_than_its_life(
    tmp_path: Path,
) -> None:
    async def nothing(_: Life) -> Exit | None:
        return None

    async def story() -> None:
        before = pidfds()
        watch = Exits({}, nothing, asyncio.get_running_loop().create_task, lambda _: None, CLOCK)
        life = Life("w", 1, "w.1.aa", tmp_path, PageReader(tmp_path, 0))
        with subprocess.Popen(["sleep", "600"]) as former:
            try:
                process = identify(former.pid)
                assert process is not None
                life.ranks["0"] = RankMemory(attached_at=1.0, process=process)
                life.watched.add(process)
                assert watch.watch_rank(process)
                life.ranks["0"].process = None  # as when another agent takes its place
                watch.drop(life)
                assert pidfds() == before
            finally:
                former.kill()
        watch.close()
        life.pages.close()

    asyncio.run(story())
