"""Reads of other processes' memory may hang with them, and hold up nobody here."""

from __future__ import annotations

import asyncio
import os
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from stepwarden.clock import SystemClock
from stepwarden.edge.burial import bury
from stepwarden.edge.family import Family
from stepwarden.edge.process_probe import alive
from stepwarden.edge.process_table import ProcessTable
from stepwarden.edge.traces import TraceReader, read_file
from support.process_world import run, until, world

CLOCK = SystemClock()
MARK = f"w-{uuid.uuid4().hex}"  # nobody else on this host carries it
SLEEP = "import time; time.sleep(600)"
SHORT = 0.1


class Hanging:
    """Reads files, those of one process from a FIFO without a writer: the read hangs."""

    def __init__(self, fifo: Path) -> None:
        self._fifo = fifo
        self.pid = -1
        os.mkfifo(fifo)

    def read(self, path: str) -> bytes:
        return read_file(str(self._fifo) if path.startswith(f"/proc/{self.pid}/") else path)

    def let_go(self) -> None:
        """Whoever reads gets an end of file."""
        self.pid = -1
        os.close(os.open(self._fifo, os.O_RDWR | os.O_NONBLOCK))


@pytest.fixture
def hanging(tmp_path: Path) -> Iterator[Hanging]:
    made = Hanging(tmp_path / "fifo")
    yield made
    made.let_go()


def no_thread_left() -> bool:
    return not any(thread.name.startswith("trace") for thread in threading.enumerate())


def test_a_process_whose_read_hangs_is_left_alone_until_it_comes_back(hanging: Hanging) -> None:
    async def story() -> None:
        async with world() as here:
            stuck = await here.python(SLEEP, STEPWARDEN_INCARNATION=MARK)
            other = await here.python(SLEEP, STEPWARDEN_INCARNATION=MARK)
            hanging.pid = stuck.pid
            reader = TraceReader(hanging.read, SHORT)
            found, unread = await reader.search([stuck, other], MARK, None, 30.0)
            assert (found, unread) == ({other}, {stuck})
            assert reader.stuck == {stuck}
            threads = threading.active_count()
            assert reader.ask(stuck, MARK).result(0) is None  # answered at once, by no new thread
            assert threading.active_count() <= threads
            hanging.let_go()
            await until(lambda: not reader.stuck)
            assert await reader.search([stuck], MARK, None, 30.0) == ({stuck}, set())
            await until(no_thread_left)

    run(story())


def test_a_search_ends_with_its_time(hanging: Hanging) -> None:
    async def story() -> None:
        async with world() as here:
            stuck = await here.python(SLEEP)
            hanging.pid = stuck.pid
            reader = TraceReader(hanging.read, 600.0)
            assert await reader.search([stuck], MARK, None, 0.01) == (set(), {stuck})

    run(story())


def test_the_burial_of_another_goes_on_and_names_what_it_could_not_look_at(
    hanging: Hanging,
) -> None:
    async def story() -> None:
        async with world() as here:
            main = await here.python(SLEEP)
            stuck = await here.python(SLEEP)
            hanging.pid = stuck.pid
            family = Family(main, MARK, traces=TraceReader(hanging.read, SHORT))
            told: list[str] = []
            assert await bury(family, 60.0, 10.0, CLOCK, told.append) == frozenset()
            text = "cannot be looked at, and so not taken for ours: 1 process: "
            assert [line for line in told if line.startswith("cannot")] == [f"{text}{stuck.pid}"]
            assert alive(stuck)

    run(story())


def test_a_look_at_the_family_never_waits_for_a_hanging_orphan(hanging: Hanging) -> None:
    """Nor does it ask for it again and again, or take it for a stranger for ever."""

    async def story() -> None:
        async with world() as here:
            main = await here.python(SLEEP)
            orphan = await here.python(SLEEP, STEPWARDEN_INCARNATION=MARK)
            hanging.pid = orphan.pid
            reader = TraceReader(hanging.read, SHORT)
            family = Family(main, MARK, traces=reader)
            turns = 0

            def looked() -> bool:
                nonlocal turns
                turns += 1
                table = ProcessTable.scan()
                family.observe(table)
                return orphan in family.members(table)

            await until(lambda: looked() or orphan in reader.stuck)
            for _ in range(5):
                assert not looked()
                await asyncio.sleep(0)
            assert turns >= 6
            hanging.let_go()
            await until(looked)

    run(story())
