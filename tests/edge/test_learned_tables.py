"""What is usual outlives the daemon: kept, bounded, and brought into a database of before."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from stepwarden.edge import learned_tables, state_schema
from stepwarden.edge.learned_history import read_learned
from stepwarden.edge.learned_tables import LearnedTables
from stepwarden.edge.state_records import LearnedRecord
from support.state import durable, life, note, open_store, wish

BODY = '{"rows":[[3,1.5,40]],"slow":1.0}'


def test_tables_outlive_the_daemon_and_its_boot(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        assert store.learned("one") is None
        store.note_learned("one", "w", "{}")
        store.note_learned("one", "w", BODY)
        store.note_learned("two", "v", BODY)
        store.forget_learned("two")
        assert durable(store)
        assert store.learned("one") == BODY
    with open_store(tmp_path) as again:
        assert again.learned("one") == BODY
        assert again.learned("two") is None


def test_a_forgotten_table_is_gone_after_a_restart_too(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.note_learned("one", "w", BODY)
        assert durable(store)
    with open_store(tmp_path) as store:
        store.forget_learned("one")
        assert durable(store)
    with open_store(tmp_path) as again:
        assert again.learned("one") is None


def test_o_state_a_database_of_version_2_is_brought_to_this_one_whole(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    with sqlite3.connect(state / "stepwarden.sqlite") as database:
        steps = "".join(state_schema.STEPS[:2])
        database.executescript(f"{steps} PRAGMA user_version = 2;")
        database.execute("INSERT INTO worker VALUES ('w', 'b', 'b', 1.0, '{}')")
    database.close()
    assert read_learned(state) == {}
    with open_store(tmp_path) as store:
        assert store.trouble == ""
        assert set(store.workers()) == {"w"}
        store.note_learned("one", "w", BODY)
        assert durable(store)
    assert read_learned(state) == {"one": BODY}


def test_a_database_that_is_replaced_gets_all_tables(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.note_learned("one", "w", BODY)
        note(store, life())
        store.note_worker(wish())
        assert durable(store)
        for path in (tmp_path / "state").iterdir():
            path.unlink()
        store.note_worker(wish(body="{}"))
        assert durable(store)
    assert read_learned(tmp_path / "state") == {"one": BODY}


def test_the_file_is_read_while_its_daemon_lives_and_is_not_changed(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.note_learned("one", "w", BODY)
        assert durable(store)
        before = sorted(path.name for path in (tmp_path / "state").iterdir())
        assert read_learned(tmp_path / "state") == {"one": BODY}
        assert sorted(path.name for path in (tmp_path / "state").iterdir()) == before


def test_without_a_file_nothing_is_known(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_learned(tmp_path)


def test_a_file_that_is_none_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "stepwarden.sqlite").write_text("no database" * 100)
    with pytest.raises(ValueError, match=r"stepwarden\.sqlite"):
        read_learned(tmp_path)


def test_what_was_not_used_for_longest_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learned_tables, "MOST_LEARNED", 3)
    tables = LearnedTables()
    for subject in "abc":
        tables.put(subject, "w", BODY)
    assert tables.use("a") == BODY
    tables.put("d", "w", BODY)
    assert tables.use("b") is None
    assert {s: r is not None for s, r in tables.take().items()} == {
        "a": True,
        "b": False,
        "c": True,
        "d": True,
    }
    assert tables.take() == {}


def test_what_is_newer_here_or_was_forgotten_here_stays_so() -> None:
    tables = LearnedTables()
    tables.put("mine", "w", "new")
    tables.drop("gone")
    tables.adopt(
        {
            "mine": LearnedRecord("w", 900, "old"),
            "gone": LearnedRecord("w", 901, "old"),
            "other": LearnedRecord("v", 902, "old"),
        }
    )
    assert (tables.use("mine"), tables.use("gone"), tables.use("other")) == ("new", None, "old")
    changes = tables.take()
    mine = changes["mine"]
    assert mine is not None
    assert mine.used > 902
    assert changes["gone"] is None
