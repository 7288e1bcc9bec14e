"""Homes of pages that a killed daemon left are found again and taken away."""

from __future__ import annotations

from pathlib import Path

import pytest
from stepwarden.edge.page_home import forget_page_home, note_page_home


@pytest.fixture
def note(tmp_path: Path) -> Path:
    return tmp_path / "page-homes"


def home(tmp_path: Path, name: str) -> Path:
    (tmp_path / name).mkdir()
    return tmp_path / name


def test_an_empty_home_of_an_earlier_daemon_is_taken_away(tmp_path: Path, note: Path) -> None:
    first, second = home(tmp_path, "first"), home(tmp_path, "second")
    note_page_home(note, first)
    note_page_home(note, second)
    assert not first.exists()
    assert second.exists()
    assert note.read_text() == f"{second}\n"


def test_one_that_is_in_use_yet_stays_and_stays_noted(tmp_path: Path, note: Path) -> None:
    homes = [home(tmp_path, name) for name in ("first", "second", "third")]
    (homes[0] / "w.1.abcd").mkdir()
    for one in homes[:2]:
        note_page_home(note, one)
    assert homes[0].exists()
    (homes[0] / "w.1.abcd").rmdir()
    note_page_home(note, homes[2])
    assert [one.exists() for one in homes] == [False, False, True]


def test_the_same_home_again_is_not_taken_away(tmp_path: Path, note: Path) -> None:
    same = home(tmp_path, "pages")
    note_page_home(note, same)
    note_page_home(note, same)
    assert same.exists()
    forget_page_home(note, same)
    assert note.read_text() == ""


def test_links_files_and_nonsense_are_let_be(tmp_path: Path, note: Path) -> None:
    real, own = home(tmp_path, "real"), home(tmp_path, "own")
    (tmp_path / "link").symlink_to(real)
    (tmp_path / "file").write_text("x")
    note.write_bytes(f"{tmp_path / 'link'}\n{tmp_path / 'file'}\nreal\n".encode() + b"\xff\n")
    note_page_home(note, own)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").exists()
    assert real.exists()


def test_a_state_directory_that_takes_no_note_stops_nothing(tmp_path: Path) -> None:
    note_page_home(tmp_path / "nowhere" / "page-homes", home(tmp_path, "own"))
