"""O-STATE-1: SIGKILL of a real writer at any instant leaves the old or the new version, whole."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from stepwarden.edge import state_schema
from support.state import durable, open_store

# Forks a writer for each line that it gets, so that a round costs no start of an interpreter.
# A writer says which generation is wholly noted; the parent says when it is gone.
_WRITERS = """
import os, sys
from pathlib import Path
from stepwarden.clock import SystemClock
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import ProcessId
from support.state import *
def say(text):
    os.write(1, (text + "\\n").encode())
def writes(home):
    store = make_store(home)
    store.lives()
    known = store.workers().get("w")
    first = int(known.body.split(":")[0]) + 1 if known else 1
    for g in range(first, first + 100_000):
        store.note_worker(wish("w", f"{g}:" + f"{g}," * 3000))
        for number in range(5):
            store.journal.append(Event(Kind.DAEMON, f"{g}"), 1.0, SystemClock().wall())
        assert note(store, life(f"w.{g}", pid=g))
        store.note_processes(f"w.{g}", {ProcessId(g, n) for n in range(50)})
        for record in store.lives():
            if record.pid != g:
                assert forget(store, record.incarnation)
        assert durable(store)
        say(f"noted {g}")
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        try:
            writes(Path(line.strip()))
        finally:
            os._exit(3)
    say(f"pid {pid}")
    say(f"gone {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}")
"""


class Writers:
    """The process that forks writers."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _WRITERS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def kill_one(self, home: Path, after: float) -> int:
        """Let one write in `home`, kill it `after` seconds; the newest generation that it noted."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{home}\n")
        self._process.stdin.flush()
        word, pid = self._line()
        assert word == "pid"
        time.sleep(after)  # the random instant is what is tried
        os.kill(int(pid), signal.SIGKILL)
        noted = 0
        while (said := self._line())[0] != "gone":
            assert said[0] == "noted"
            noted = int(said[1])
        assert said[1] == "-9"
        return noted

    def close(self) -> None:
        """End it; its writer is gone already."""
        self._process.kill()
        self._process.communicate()

    def _line(self) -> list[str]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the writers have ended"
        return line.split()


@contextmanager
def writers() -> Iterator[Writers]:
    made = Writers()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sw-") as name:
        yield Path(name)


def check(home: Path, noted: int, least: int, whole: Collection[int] = ()) -> int:
    """What was wholly noted is there, and at most the one version after it; returns that found.

    `noted`: the newest version that a writer said is whole; `least`: that must be there at least.
    `whole`: all versions that a writer said so of. A kill may leave a version without its events.
    """
    with open_store(home) as store:
        assert store.trouble == ""
        body = store.workers()["w"].body if store.workers() else "0:"
        version = int(body.split(":")[0])
        assert version in (least, least + 1)
        assert body == f"{version}:" + f"{version}," * (3000 if version else 0)
        lives = {int(record.incarnation.split(".")[1]) for record in store.lives()}
        assert lives <= set(range(noted, version + 2))
        assert lives or not noted
        for record in store.lives():
            assert record.pid == int(record.incarnation.split(".")[1])
        if noted in lives:
            assert len(store.processes(f"w.{noted}")) == 50
        events = store.journal.recent(1_000_000)
        assert [recorded.id for recorded in events] == list(range(1, len(events) + 1))
        told = Counter(recorded.event.sentence for recorded in events)
        assert {told[str(number)] for number in whole} <= {5}
        assert durable(store)
        names = {p.name for p in (home / "state").iterdir()}
        assert names <= {"stepwarden.sqlite", "stepwarden.sqlite-wal", "stepwarden.sqlite-shm"}
        notes = {p.name for p in (home / "run").iterdir()} - {"life-notes", "worker-notes.json"}
        assert notes == set()
        assert len(list((home / "run" / "life-notes").glob("*"))) <= len(lives)
    return version


def kill_often(home: Path, rounds: int) -> None:
    chance = random.Random()
    noted = version = 0
    whole: set[int] = set()
    with writers() as made:
        for _ in range(rounds):
            noted = max(noted, made.kill_one(home, chance.uniform(0.0, 0.15)))
            whole.update(range(version + 1, noted + 1))
            version = check(home, noted, max(noted, version), whole)
    assert noted > rounds / 10


def test_o_state_1_a_kill_at_any_instant_leaves_a_whole_version(home: Path) -> None:
    kill_often(home, 30)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_o_state_1_two_hundred_kills_leave_whole_versions(home: Path) -> None:
    kill_often(home, 200)


def old_journal(directory: Path, events: int) -> None:
    directory.mkdir()
    with sqlite3.connect(directory / "journal.sqlite") as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript(state_schema.STEPS[0] + "PRAGMA user_version = 1;")
        rows = [(n + 1, "", 1.0, "daemon", *[""] * 6, "x" * 50, "{}") for n in range(events)]
        database.executemany(f"INSERT INTO event VALUES ({', '.join('?' * 12)})", rows)
        # As a kill leaves it: with its WAL.
        database.commit()
        shutil.copytree(directory, directory.with_name("killed"))
    database.close()


def kill_while_taking_over(home: Path, rounds: int) -> None:
    old_journal(home / "old", 2000)
    chance = random.Random()
    with writers() as made:
        for number in range(rounds):
            again = home / f"round-{number}"
            again.mkdir()
            shutil.copytree(home / ("killed" if number % 2 else "old"), again / "state")
            made.kill_one(again, chance.uniform(0.0, 0.04))
            with open_store(again) as store:
                assert store.trouble == ""
                assert [r.id for r in store.journal.recent(2000)][-2000:]
                assert store.journal.recent(1_000_000)[0].id == 1
                assert len(store.journal.recent(1_000_000)) >= 2000
            assert [p.name for p in (again / "state").iterdir()] == ["stepwarden.sqlite"]


def test_a_kill_while_the_old_journal_is_taken_over_loses_nothing(home: Path) -> None:
    kill_while_taking_over(home, 8)


@pytest.mark.soak
def test_many_kills_while_the_old_journal_is_taken_over_lose_nothing(home: Path) -> None:
    kill_while_taking_over(home, 80)
