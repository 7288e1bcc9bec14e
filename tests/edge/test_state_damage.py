"""O-STATE-1: whatever lies where the database should, supervision begins."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from stepwarden.edge import state_file, state_schema
from support.state import durable, forget, life, note, open_store, wish


def zero(path: Path) -> None:
    path.write_bytes(b"")


def nul(path: Path) -> None:
    path.write_bytes(bytes(512))


def nul_whole(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def json_list(path: Path) -> None:
    path.write_bytes(b"[]")


def newer(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version = {state_schema.VERSION + 1}")
    database.close()


def foreign(path: Path) -> None:
    path.unlink()
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE precious (text TEXT)")
    database.close()


def other_tables(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("DROP TABLE life")
        database.execute("CREATE TABLE life (incarnation TEXT)")
    database.close()


def torn(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4096:] = b"\x5a" * (len(content) - 4096)
    path.write_bytes(content)


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "nowhere")


def link(path: Path) -> None:
    target = path.with_name("precious")
    path.rename(target)
    path.symlink_to(target)


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGES = [
    zero,
    nul,
    nul_whole,
    half,
    json_list,
    newer,
    foreign,
    other_tables,
    torn,
    a_directory,
    dangling,
    link,
    fifo,
]
ASIDE = re.compile(r"stepwarden\.sqlite\.(damaged|newer)-\d{8}T\d{6}(-\d+)?")


def filled(directory: Path) -> Path:
    with open_store(directory) as store:
        note(store, life(pid=41))
        store.note_worker(wish())
        for number in range(200):
            store.note_worker(wish(f"w{number}", "x" * 100))
        assert durable(store)
    return directory / "state" / "stepwarden.sqlite"


def aside(directory: Path) -> list[str]:
    names = (p.name for p in (directory / "state").iterdir())
    return sorted(name for name in names if ASIDE.fullmatch(name))


@pytest.mark.parametrize("damage", DAMAGES)
def test_o_state_1_damage_is_kept_aside_and_said_and_lives_are_found(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    path = filled(tmp_path)
    damage(path)
    seen = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
    with open_store(tmp_path) as store:
        (kept,) = aside(tmp_path)
        assert store.trouble.startswith(f"the state database {path} ")
        assert f"it was kept as {path.parent / kept} and a new one begun" in store.trouble
        assert "\n" not in store.trouble
        # The runtime directory has all that decides besides: nobody is doubled, no stop forgotten.
        assert store.lives() == [life(pid=41)]
        told = store.workers()
        assert (told["w"], len(told)) == (wish(), 201)
        assert durable(store)
    assert kept.startswith("stepwarden.sqlite.newer-") == (damage is newer)
    if seen:
        assert (path.parent / kept).read_bytes() == seen
    with open_store(tmp_path) as again:
        assert again.trouble == ""
        assert again.workers() == told
        assert aside(tmp_path) == [kept]


def test_o_state_1_a_wal_that_is_damaged_costs_what_was_in_it_at_most(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.note_worker(wish())
        assert durable(store)
        for name in ("state", "run"):
            shutil.copytree(tmp_path / name, tmp_path / "killed" / name)
    wal = tmp_path / "killed" / "state" / "stepwarden.sqlite-wal"
    wal.write_bytes(bytes(wal.stat().st_size))
    with open_store(tmp_path / "killed") as after:
        note(after, life())
        assert durable(after)
        assert after.lives() == [life()]


def test_what_is_kept_aside_is_bounded_and_never_written_over(tmp_path: Path) -> None:
    wall = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    path = tmp_path / "stepwarden.sqlite"
    names = []
    for number in range(8):
        path.write_text(f"damage {number}")
        path.with_name(path.name + "-wal").write_text("beside")
        names.append(state_file.put_aside(path, "damaged", wall))
    assert len(set(names)) == len(names)
    left = [p for p in tmp_path.iterdir() if not p.name.endswith("-wal")]
    assert sorted(p.read_text() for p in left) == [f"damage {n}" for n in range(3, 8)]
    assert len(list(tmp_path.iterdir())) == 2 * len(left)
    for number in range(8):
        path.write_text(f"newer {number}")
        state_file.put_aside(path, "newer", wall)
    assert len(list(tmp_path.glob("*.newer-*"))) == 8


# What root may read anyway

_AS_NOBODY = """
import os, sys
from pathlib import Path
from support.state import *
os.setgroups([]); os.setgid(65534); os.setuid(65534)
directory = Path(sys.argv[1])
with open_store(directory) as store:
    note(store, life(pid=41)); store.note_worker(wish()); assert durable(store)
path = directory / "state" / "stepwarden.sqlite"
path.chmod(0)
with open_store(directory) as store:
    assert store.lives() == [life(pid=41)]
    store.note_worker(wish("v")); assert durable(store)
    print(store.trouble)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="takes another user")
def test_o_state_1_a_file_of_mode_000_is_kept_aside() -> None:
    with tempfile.TemporaryDirectory() as name:
        own = Path(name)
        os.chown(own, 65534, 65534)
        done = subprocess.run(
            [sys.executable, "-c", _AS_NOBODY, name],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        kept = aside(own)
    assert done.returncode == 0, done.stderr
    assert "stepwarden.sqlite cannot be opened: Permission denied; it was kept as" in done.stdout
    assert len(kept) == 1


def test_damage_while_it_is_open_is_found_and_nothing_known_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stepwarden.edge.state_writer.RETRY_SECONDS", 0.05)
    with open_store(tmp_path) as store:
        note(store, life())
        store.note_worker(wish())
        assert durable(store)
        path = tmp_path / "state" / "stepwarden.sqlite"
        path.rename(path.with_name("taken"))
        path.write_bytes(b"no database at all" * 300)
        store.note_worker(wish("v"))
        assert store.flush(20.0) or store.flush(20.0)
        assert "it was kept as" in store.trouble
        assert forget(store, "w.1.abcd")
    with open_store(tmp_path) as again:
        assert set(again.workers()) == {"w", "v"}
        assert again.lives() == []
