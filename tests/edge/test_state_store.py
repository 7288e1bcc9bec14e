from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import pytest
from stepwarden.core.evidence import ProcessId
from stepwarden.edge import state_schema, state_writer
from stepwarden.edge.state_records import LifeRecord
from stepwarden.edge.state_store import StateStore
from stepwarden.edge.views import RecordedEvent
from support.state import BOOT, durable, forget, life, make_store, note, open_store, wish
from support.waiting import wait_for

OTHER_BOOT = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
def quick_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_writer, "RETRY_SECONDS", 0.05)


@pytest.fixture
def no_umask() -> Iterator[None]:
    old = os.umask(0)
    yield
    os.umask(old)


def notes_of(directory: Path) -> list[Path]:
    return sorted((directory / "run" / "life-notes").glob("*"))


def test_o_state_2_lives_wishes_and_processes_outlive_the_daemon(tmp_path: Path) -> None:
    first = life("w.1.abcd", pid=41)
    second = life("v.2.abcd", "v", pid=42)
    seen = {ProcessId(41, 7), ProcessId(43, 9)}
    with open_store(tmp_path) as store:
        assert note(store, first)
        assert note(store, second)
        store.note_worker(wish("w", '{"stopped": false}'))
        store.note_worker(wish("w"))
        store.note_processes(first.incarnation, seen)
        assert durable(store)
        assert store.trouble == ""
    with open_store(tmp_path) as again:
        assert again.lives() == [first, second]
        assert again.workers() == {"w": wish("w")}
        assert again.processes(first.incarnation) == seen
        assert again.processes("nobody") == set()
        assert again.trouble == ""


def test_a_life_is_known_until_it_is_forgotten_and_its_processes_go_with_it(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        note(store, life())
        note(store, life(pid=41))
        assert store.lives() == [life(pid=41)]
        store.note_processes("w.1.abcd", {ProcessId(41, 7)})
        store.note_processes("of-no-life", {ProcessId(50, 7)})
        store.drop_processes("w.1.abcd", {ProcessId(41, 7)})
        store.note_processes("w.1.abcd", {ProcessId(42, 7)})
        assert forget(store, "w.1.abcd")
        assert store.lives() == []
        assert notes_of(tmp_path) == []
    with open_store(tmp_path) as again:
        assert again.lives() == []
        assert again.processes("w.1.abcd") == set()
    with sqlite3.connect(tmp_path / "state" / "stepwarden.sqlite") as database:
        assert database.execute("SELECT count(*) FROM process").fetchone() == (0,)
    database.close()


@pytest.mark.usefixtures("no_umask")
def test_nothing_that_holds_a_token_can_be_read_by_others(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        note(store, life())
        store.note_worker(wish())
        durable(store)
        write_worker_notes(store)
        found = [p for p in tmp_path.rglob("*") if p.is_file()]
        assert {"stepwarden.sqlite", "stepwarden.sqlite-wal", "stepwarden.sqlite-shm"} <= {
            p.name for p in found
        }
        assert {stat.S_IMODE(p.stat().st_mode) for p in found} == {0o600}
        assert stat.S_IMODE((tmp_path / "run" / "life-notes").stat().st_mode) == 0o700
        assert "secret" not in repr(store.lives())


def write_worker_notes(store: StateStore) -> None:
    """As if the database took nothing."""
    store._notes.keep()


def test_a_database_that_others_can_read_is_made_private(tmp_path: Path) -> None:
    open_and_leave(tmp_path)
    path = tmp_path / "state" / "stepwarden.sqlite"
    path.chmod(0o644)
    with open_store(tmp_path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def open_and_leave(directory: Path) -> None:
    with open_store(directory) as store:
        note(store, life())
        store.note_worker(wish())
        durable(store)


def test_after_a_reboot_lives_are_gone_and_wishes_are_not(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        note(store, life(boot=OTHER_BOOT, pid=1234))
        store.note_processes("w.1.abcd", {ProcessId(1234, 7)})
        store.note_worker(wish(boot=OTHER_BOOT))
        durable(store)
    with open_store(tmp_path) as again:
        assert again.lives() == []
        assert again.processes("w.1.abcd") == set()
        assert again.workers() == {"w": wish(boot=OTHER_BOOT)}
        assert notes_of(tmp_path) == []


def test_lives_are_found_though_the_state_directory_was_wiped(tmp_path: Path) -> None:
    open_and_leave(tmp_path)
    shutil.rmtree(tmp_path / "state")
    with open_store(tmp_path) as again:
        assert again.lives() == [life()]
        durable(again)
    shutil.rmtree(tmp_path / "run")
    with open_store(tmp_path) as again:
        assert again.lives() == [life()]


def test_a_note_of_a_life_that_cannot_be_read_is_kept_aside_and_said(tmp_path: Path) -> None:
    notes = tmp_path / "run" / "life-notes"
    notes.mkdir(parents=True)
    good = {"noted_at": 1.0, **asdict(life("good.1.a", "good"))}
    (notes / "good.1.a.json").write_text(json.dumps(good))
    (notes / "bad.json").write_text('{"worker": "bad"')
    (notes / "other-name.json").write_text(json.dumps(good))
    (notes / "half.json.new").write_text("{")
    (notes / "link.json").symlink_to(notes / "good.1.a.json")
    with open_store(tmp_path) as store:
        assert store.lives() == [life("good.1.a", "good")]
        for name in ("bad.json", "other-name.json", "link.json"):
            assert f"{notes / name} cannot be read" in store.trouble
        assert "\n" not in store.trouble
    left = {p.name.split(".unreadable")[0] for p in notes_of(tmp_path)}
    assert left == {"good.1.a.json", "bad.json", "other-name.json", "link.json"}


def test_the_database_of_another_moment_wins_where_it_is_newer(tmp_path: Path) -> None:
    open_and_leave(tmp_path)
    note_path = tmp_path / "run" / "life-notes" / "w.1.abcd.json"
    old = note_path.read_text()
    with open_store(tmp_path) as store:
        note(store, life(pid=41))
    note_path.write_text(old)
    with open_store(tmp_path) as again:
        assert again.lives() == [life(pid=41)]


# What release 0.1 left


def test_the_journal_and_the_notes_of_release_0_1_are_taken_over(tmp_path: Path) -> None:
    state = tmp_path / "state"
    (state / "lives").mkdir(parents=True)
    with sqlite3.connect(state / "journal.sqlite") as database:
        database.execute("PRAGMA journal_mode = WAL")
        database.executescript(state_schema.STEPS[0] + "PRAGMA user_version = 1;")
        row = (7, "2026-01-02T03:04:05.000+00:00", 1.0, "started", "w", "3", *[""] * 5, "{}")
        database.execute(f"INSERT INTO event VALUES ({', '.join('?' * 12)})", row)
    database.close()
    old = {"worker": "w", "incarnation": "w.9.old", "page_dir": "/p", "boot_id": BOOT, "pid": 9}
    (state / "lives" / "w.9.old.json").write_text(json.dumps(old))
    gone = {**old, "incarnation": "w.8.old", "boot_id": OTHER_BOOT}
    (state / "lives" / "w.8.old.json").write_text(json.dumps(gone))
    for _ in range(2):
        with open_store(tmp_path) as store:
            assert [recorded.id for recorded in store.journal.recent(10)] == [7]
            assert store.journal.incarnations == {"w": 3}
            assert store.lives() == [
                LifeRecord("w", "w.9.old", BOOT, "spawn", "/p", "", 0.0, 9, 0),
            ]
            assert durable(store)
            assert store.trouble == ""
        assert sorted(p.name for p in state.iterdir()) == ["stepwarden.sqlite"]


# The database takes nothing for a while


@pytest.mark.usefixtures("quick_retry")
def test_o_rstr_2_a_stop_holds_though_the_database_is_locked_and_the_daemon_killed(
    tmp_path: Path,
) -> None:
    open_and_leave(tmp_path)
    with open_store(tmp_path) as store:
        store.note_worker(wish(body="run"))
        durable(store)
        locker = sqlite3.connect(store.path, isolation_level=None)
        locker.execute("BEGIN IMMEDIATE")
        store.note_worker(wish(body="stop"))
        kept = durable(store)
        assert kept
        assert "locked" in kept.reason
        assert "locked" in store.trouble
        assert note(store, life("v.1.abcd", "v"))
        killed = tmp_path / "killed"
        shutil.copytree(tmp_path / "run", killed / "run")
        shutil.copytree(tmp_path / "state", killed / "state")
        locker.execute("ROLLBACK")
        locker.close()
        wait_for(lambda: store.trouble == "")
        assert durable(store)
    with open_store(killed) as after:
        assert after.workers() == {"w": wish(body="stop")}
        assert after.lives() == [life(), life("v.1.abcd", "v")]
        assert durable(after)
    with open_store(tmp_path) as again:
        assert again.workers() == {"w": wish(body="stop")}
        assert again.lives() == [life(), life("v.1.abcd", "v")]


@pytest.mark.usefixtures("quick_retry")
def test_what_was_noted_is_known_though_the_database_is_locked_from_the_start(
    tmp_path: Path,
) -> None:
    open_and_leave(tmp_path)
    shutil.rmtree(tmp_path / "run")
    locker = sqlite3.connect(tmp_path / "state" / "stepwarden.sqlite", isolation_level=None)
    locker.execute("PRAGMA locking_mode = EXCLUSIVE")
    locker.execute("BEGIN EXCLUSIVE")
    with open_store(tmp_path) as store:
        assert "locked" in store.trouble
        assert store.lives() == [life()]
        assert store.workers() == {"w": wish()}
        store.forget_worker("w")
        assert forget(store, "w.1.abcd", limit=0.2).reason
        locker.execute("ROLLBACK")
        locker.close()
        wait_for(lambda: store.trouble == "")
        assert durable(store)
    with open_store(tmp_path) as again:
        assert again.lives() == []
        assert again.workers() == {}


def test_an_old_note_of_a_worker_does_not_undo_what_the_database_has(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.note_worker(wish(body="old"))
        write_worker_notes(store)
        left = (tmp_path / "run" / "worker-notes.json").read_text()
        store.note_worker(wish(body="new"))
        durable(store)
    (tmp_path / "run" / "worker-notes.json").write_text(left)
    with open_store(tmp_path) as again:
        assert again.workers() == {"w": wish(body="new")}
    (tmp_path / "run" / "worker-notes.json").write_text(left.replace(BOOT, OTHER_BOOT))
    with open_store(tmp_path) as again:
        assert again.workers() == {"w": wish(body="new")}


def test_workers_are_known_though_the_database_is_damaged_later(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.note_worker(wish("w", body="stop"))
        store.note_worker(wish("v", body="run"))
        durable(store)
        store.note_worker(wish("v", body="stop"))
        durable(store)
        store.forget_worker("w")
        durable(store)
    for path in (tmp_path / "state").glob("stepwarden.sqlite*"):
        path.write_bytes(bytes(4096))
    with open_store(tmp_path) as again:
        assert again.workers() == {"v": wish("v", body="stop")}
        assert "damaged" in again.trouble
        again.forget_worker("v")
        durable(again)
        assert not (tmp_path / "run" / "worker-notes.json").exists()


def test_unreadable_notes_of_workers_are_kept_aside(tmp_path: Path) -> None:
    for content in ("[", "{}", "[1]", '[{"record": {"worker": 1}}]', "[" * 100_000):
        (tmp_path / "run").mkdir(exist_ok=True)
        (tmp_path / "run" / "worker-notes.json").write_text(content)
        with open_store(tmp_path) as store:
            assert "worker-notes.json cannot be read" in store.trouble
            assert "kept as" in store.trouble
            assert store.workers() == {}
    kept = list((tmp_path / "run").glob("worker-notes.json.unreadable-*"))
    assert len(kept) == 5


@pytest.mark.usefixtures("quick_retry")
def test_where_neither_place_takes_it_that_is_said(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        locker = sqlite3.connect(store.path, isolation_level=None)
        locker.execute("BEGIN IMMEDIATE")
        shutil.rmtree(tmp_path / "run")
        (tmp_path / "run").touch()
        noted = note(store, life())
        assert not noted
        assert "locked" in noted.reason
        assert "no copy in" in noted.reason
        store.note_worker(wish())
        assert not durable(store)
        assert store.lives() == [life()]
        locker.close()
        wait_for(lambda: store.trouble == "")
        assert durable(store)
    (tmp_path / "run").unlink()
    with open_store(tmp_path) as again:
        assert again.lives() == [life()]
        assert again.workers() == {"w": wish()}


def test_a_database_taken_away_under_our_feet_is_made_anew_whole(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        note(store, life())
        store.note_worker(wish())
        durable(store)
        for path in (tmp_path / "state").iterdir():
            path.unlink()
        store.note_worker(wish("v"))
        assert durable(store)
    shutil.rmtree(tmp_path / "run")
    with open_store(tmp_path) as again:
        assert again.lives() == [life()]
        assert set(again.workers()) == {"w", "v"}


def test_a_worker_that_was_forgotten_stays_so(tmp_path: Path) -> None:
    open_and_leave(tmp_path)
    with open_store(tmp_path) as store:
        store.forget_worker("w")
        durable(store)
    with open_store(tmp_path) as again:
        assert again.workers() == {}


def test_what_is_noted_after_the_close_is_kept_in_the_runtime_directory(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.close()
    noted = note(store, life())
    assert noted
    assert "closed" in noted.reason
    store.note_worker(wish())
    assert durable(store)
    with open_store(tmp_path) as again:
        assert again.lives() == [life()]
        assert again.workers() == {"w": wish()}


def test_second_copies_that_were_taken_away_are_written_again(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        assert note(store, life("w.1.abcd", pid=41))
        store.note_worker(wish("w"))
        assert durable(store)
        wait_for((tmp_path / "run" / "worker-notes.json").exists)
        shutil.rmtree(tmp_path / "run")
        store.copy_again()
        wait_for(lambda: len(notes_of(tmp_path)) == 1)
        wait_for((tmp_path / "run" / "worker-notes.json").exists)


def test_what_a_commit_could_not_take_is_taken_by_the_next(
    tmp_path: Path, quick_retry: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever on the way it failed, by a fault of ours too."""
    del quick_retry
    with open_store(tmp_path) as store:
        prune, failures = store.journal.prune_to, [RuntimeError("a fault")]

        def failing(batch: Sequence[RecordedEvent]) -> int:
            if failures:
                raise failures.pop()
            return prune(batch)

        monkeypatch.setattr(store.journal, "prune_to", failing)
        store.note_worker(wish("w"))
        assert "a fault" in durable(store).reason
        wait_for(lambda: not store.trouble)
        assert durable(store).reason == ""
    with open_store(tmp_path) as again:
        assert again.workers() == {"w": wish("w")}
