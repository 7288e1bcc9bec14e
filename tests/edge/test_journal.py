from __future__ import annotations

import sqlite3
import stat
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from stepwarden.core.event import Event, Kind
from stepwarden.edge import journal as journal_module
from stepwarden.edge import journal_file
from stepwarden.edge.journal import Journal
from stepwarden.edge.views import RecordedEvent
from support.waiting import wait_for

WALL = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def event(worker: str = "w", sentence: str = "it happened") -> Event:
    return Event(
        kind=Kind.TRANSITION,
        sentence=sentence,
        worker=worker,
        incarnation="inc-1",
        from_state="HEALTHY",
        to_state="UNHEALTHY",
        cause="step",
        rank="0",
        data={"budget": 42.8, "step": 7, "phase": "decode", "left": None},
    )


def add(journal: Journal, count: int = 1, worker: str = "w") -> list[RecordedEvent]:
    return [journal.append(event(worker, f"number {n}"), 10.0 + n, WALL) for n in range(count)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def test_what_is_appended_is_read_back_whole_after_a_restart(path: Path) -> None:
    journal = Journal(path)
    (recorded,) = add(journal)
    assert recorded.time == "2026-01-02T03:04:05.000+00:00"
    assert journal.recent(10) == [recorded]
    journal.close()
    again = Journal(path)
    assert again.recent(10) == [recorded]
    assert add(again)[0].id == recorded.id + 1
    assert again.trouble == ""
    again.close()


def test_recent_is_the_newest_oldest_first_and_by_worker(path: Path) -> None:
    journal = Journal(path)
    for n in range(30):
        add(journal, worker=f"w{n % 3}")
    for flushed in (False, True):
        assert [r.id for r in journal.recent(4)] == [27, 28, 29, 30]
        assert [r.id for r in journal.recent(2, "w1")] == [26, 29]
        assert journal.recent(0) == []
        assert journal.recent(5, "nobody") == []
        assert flushed or journal.flush()
    journal.close()


def test_the_file_is_private_and_wal(path: Path) -> None:
    journal = Journal(path)
    add(journal)
    assert journal.flush()
    for name in ("journal.db", "journal.db-wal"):
        assert stat.S_IMODE((path.parent / name).stat().st_mode) == 0o600
    journal.close()


def test_old_events_are_dropped_by_count(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_PRUNE_EVERY", 10)
    journal = Journal(path, keep=50)
    add(journal, 200)
    assert journal.flush()
    add(journal, 10)
    assert journal.flush()
    kept = journal.recent(1000)
    assert 50 <= len(kept) <= 60
    assert kept[-1].id == 210
    journal.close()


@pytest.mark.parametrize("damage", ["garbage", "torn", "newer", "foreign"])
def test_a_damaged_file_is_kept_aside_and_a_new_one_begun(path: Path, damage: str) -> None:
    journal = Journal(path)
    add(journal, 500)
    journal.close()
    _damage(path, damage)
    again = Journal(path)
    assert "kept as" in again.trouble
    assert "\n" not in again.trouble
    assert (path.parent / "journal.db.damaged-1").exists()
    recorded = add(again)
    assert again.flush()
    assert again.recent(10) == recorded
    again.close()


def _damage(path: Path, damage: str) -> None:
    if damage == "garbage":
        path.write_bytes(b"no database at all " * 500)
    elif damage == "torn":
        content = bytearray(path.read_bytes())
        content[4096:] = b"\x5a" * (len(content) - 4096)
        path.write_bytes(content)
    else:
        with sqlite3.connect(path) as database:
            if damage == "newer":
                database.execute("PRAGMA user_version = 99")
            else:
                database.execute("DROP TABLE event")
                database.execute("CREATE TABLE event (id INTEGER PRIMARY KEY, worker TEXT)")
        database.close()


def test_an_empty_file_is_a_new_journal(path: Path) -> None:
    path.touch()
    journal = Journal(path)
    assert journal.trouble == ""
    journal.close()


def test_a_link_in_its_place_is_not_followed(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("precious")
    path.symlink_to(target)
    journal = Journal(path)
    assert "cannot be used" in journal.trouble
    journal.close()
    assert target.read_text() == "precious"


def test_without_a_file_history_is_kept_in_memory_and_written_when_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "RETRY_SECONDS", 0.05)
    path = tmp_path / "missing" / "journal.db"
    journal = Journal(path)
    assert "cannot be used" in journal.trouble
    recorded = add(journal, 3)
    assert journal.recent(10) == recorded
    path.parent.mkdir()
    assert journal.flush()
    assert journal.trouble == ""
    assert journal.recent(10) == recorded
    journal.close()


def test_history_that_could_not_be_opened_at_first_is_not_written_over(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "RETRY_SECONDS", 0.05)
    first = Journal(path)
    kept = add(first, 3)
    first.close()
    away = path.with_name("away")
    path.rename(away)
    path.mkdir()
    journal = Journal(path)
    add(journal, 2, worker="later")
    path.rmdir()
    away.rename(path)
    assert journal.flush()
    wait_for(lambda: len(journal.recent(10)) == 5)
    assert list(journal.recent(10)[:3]) == kept
    assert [r.id for r in journal.recent(10)] == [1, 2, 3, 4, 5]
    assert add(journal)[0].id == 6
    journal.close()


def test_a_full_disk_costs_no_event_and_is_told_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "RETRY_SECONDS", 0.05)
    write = journal_file.write
    full = True

    def writing(database: sqlite3.Connection, batch: list[RecordedEvent]) -> None:
        if full:
            # SQLite's own way to be full; the file cannot grow by a page more.
            (pages,) = database.execute("PRAGMA page_count").fetchone()
            database.execute(f"PRAGMA max_page_count = {pages}")
        write(database, batch)

    monkeypatch.setattr(journal_file, "write", writing)
    journal = Journal(path)
    recorded = add(journal, 2000)
    wait_for(lambda: "takes no events" in journal.trouble or "full" in journal.trouble)
    assert journal.recent(5000) == recorded
    full = False
    assert journal.flush(20.0)
    assert journal.trouble == ""
    assert journal.recent(5000) == recorded
    journal.close()


def test_memory_is_bounded_while_the_file_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "MAX_PENDING", 100)
    journal = Journal(tmp_path / "missing" / "journal.db")
    add(journal, 150)
    assert len(journal.recent(1000)) == 100
    assert journal.lost == 50
    journal.close()


def test_texts_that_are_no_unicode_and_numbers_that_are_no_json(path: Path) -> None:
    journal = Journal(path)
    odd = Event(Kind.DAEMON, "path \udcff\0", data={"a": float("nan"), "b": float("inf")})
    journal.append(odd, 1.0, WALL)
    assert journal.flush()
    journal.close()
    again = Journal(path)
    (recorded,) = again.recent(10)
    assert recorded.event.sentence.startswith("path ?")
    assert recorded.event.data == {"a": None, "b": None}
    again.close()


def lived(journal: Journal, worker: str, incarnation: str) -> None:
    journal.append(replace(event(worker), incarnation=incarnation), 1.0, WALL)


def test_the_highest_incarnation_of_each_worker_is_known_after_a_restart(path: Path) -> None:
    journal = Journal(path)
    assert journal.incarnations == {}
    for incarnation in ("9", "10", "2", "w.77.abcd", ""):
        lived(journal, "w", incarnation)
    lived(journal, "never", "")
    lived(journal, "", "12")
    journal.close()
    again = Journal(path)
    assert again.incarnations == {"w": 10, "never": 0}
    again.close()


def test_a_damaged_or_absent_journal_knows_no_incarnation(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"no database at all" * 300)
    damaged = Journal(path)
    assert damaged.incarnations == {}
    damaged.close()
    absent = Journal(tmp_path / "nowhere" / "journal.db")
    assert absent.incarnations == {}
    absent.close()
