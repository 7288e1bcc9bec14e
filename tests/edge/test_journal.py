from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from stepwarden.core.event import Event, Kind
from stepwarden.edge import journal as journal_module
from stepwarden.edge import journal_file, state_writer
from stepwarden.edge.journal import Journal
from stepwarden.edge.state_store import StateStore
from stepwarden.edge.views import EventFilter, RecordedEvent
from support.state import make_store, open_store
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


@contextmanager
def open_journal(directory: Path) -> Iterator[Journal]:
    with open_store(directory) as store:
        yield store.journal


@pytest.fixture
def quick_retry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_writer, "RETRY_SECONDS", 0.05)


def test_what_is_appended_is_read_back_whole_after_a_restart(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        (recorded,) = add(journal)
        assert recorded.time == "2026-01-02T03:04:05.000+00:00"
        assert journal.recent(10) == [recorded]
    with open_journal(tmp_path) as again:
        assert again.recent(10) == [recorded]
        assert add(again)[0].id == recorded.id + 1
        assert again.trouble == ""


def test_recent_is_the_newest_oldest_first_and_by_worker(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        for n in range(30):
            add(journal, worker=f"w{n % 3}")
        for flushed in (False, True):
            assert [r.id for r in journal.recent(4)] == [27, 28, 29, 30]
            assert [r.id for r in journal.recent(2, EventFilter("w1"))] == [26, 29]
            assert journal.recent(0) == []
            assert journal.recent(5, EventFilter("nobody")) == []
            assert flushed or journal.flush()


def test_old_events_are_dropped_by_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_PRUNE_EVERY", 10)
    for name in ("state", "run"):
        (tmp_path / name).mkdir()
    store = StateStore(tmp_path / "state", tmp_path / "run", keep_events=50)
    add(store.journal, 200)
    assert store.journal.flush()
    add(store.journal, 10)
    assert store.journal.flush()
    kept = store.journal.recent(1000)
    assert 50 <= len(kept) <= 60
    assert kept[-1].id == 210
    store.close()


@pytest.mark.usefixtures("quick_retry")
def test_a_directory_that_comes_late_gets_the_history_kept_in_memory(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    store = StateStore(tmp_path / "state", tmp_path / "run")
    assert "cannot be used" in store.trouble
    recorded = add(store.journal, 3)
    assert store.journal.recent(10) == recorded
    (tmp_path / "state").mkdir()
    assert store.journal.flush(20.0)
    wait_for(lambda: store.trouble == "")
    assert store.journal.recent(10) == recorded
    store.close()


@pytest.mark.usefixtures("quick_retry")
def test_history_that_could_not_be_opened_at_first_is_not_written_over(tmp_path: Path) -> None:
    with open_journal(tmp_path) as first:
        kept = add(first, 3)
    away = tmp_path / "away"
    (tmp_path / "state").rename(away)
    store = StateStore(tmp_path / "state", tmp_path / "run")
    add(store.journal, 2, worker="later")
    away.rename(tmp_path / "state")
    assert store.journal.flush(20.0)
    assert list(store.journal.recent(10)[:3]) == kept
    assert [r.id for r in store.journal.recent(10)] == [1, 2, 3, 4, 5]
    assert add(store.journal)[0].id == 6
    store.close()


@pytest.mark.usefixtures("quick_retry")
def test_a_full_disk_costs_no_event_and_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = journal_file.write
    full = True

    def writing(database: sqlite3.Connection, batch: list[RecordedEvent]) -> None:
        if full:
            # SQLite's own way to be full: the file cannot grow by a page more.
            (pages,) = database.execute("PRAGMA page_count").fetchone()
            database.execute(f"PRAGMA max_page_count = {pages}")
        write(database, batch)

    monkeypatch.setattr(journal_file, "write", writing)
    with open_journal(tmp_path) as journal:
        recorded = add(journal, 2000)
        wait_for(lambda: "full" in journal.trouble)
        assert journal.recent(5000) == recorded
        full = False
        assert journal.flush(20.0)
        wait_for(lambda: journal.trouble == "")
        assert journal.recent(5000) == recorded


def test_memory_is_bounded_while_the_file_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "MAX_PENDING", 100)
    (tmp_path / "run").mkdir()
    store = StateStore(tmp_path / "state", tmp_path / "run")
    add(store.journal, 150)
    assert len(store.journal.recent(1000)) == 100
    assert store.journal.lost == 50
    store.close()


def test_texts_that_are_no_unicode_and_numbers_that_are_no_json(tmp_path: Path) -> None:
    odd = Event(Kind.DAEMON, "path \udcff\0", data={"a": float("nan"), "b": float("inf")})
    with open_journal(tmp_path) as journal:
        journal.append(odd, 1.0, WALL)
        assert journal.flush()
    with open_journal(tmp_path) as again:
        (recorded,) = again.recent(10)
    assert recorded.event.sentence.startswith("path ?")
    assert recorded.event.data == {"a": None, "b": None}


def test_the_highest_incarnation_of_each_worker_is_known_after_a_restart(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        assert journal.incarnations == {}
        for incarnation in ("9", "10", "2", "w.77.abcd", ""):
            told = replace(event("w"), incarnation=incarnation)
            journal.append(told, 1.0, WALL)
        journal.append(replace(event("never"), incarnation=""), 1.0, WALL)
        journal.append(replace(event(""), incarnation="12"), 1.0, WALL)
    with open_journal(tmp_path) as again:
        assert again.incarnations == {"w": 10, "never": 0}


def test_the_journal_of_a_closed_store_still_takes_events(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.close()
    recorded = add(store.journal)
    assert store.journal.recent(5) == recorded
