from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.edge.output_capture import Rotation, rotate_copytruncate
from stepwarden.edge.output_tail import tail, visible


def _current(directory: Path, data: bytes) -> Path:
    (directory / "current.log").write_bytes(data)
    return directory


def test_the_last_lines(tmp_path: Path) -> None:
    _current(tmp_path, b"".join(b"line %d\n" % n for n in range(100)) + b"no end")
    assert tail(tmp_path, 3) == ["line 98", "line 99", "no end"]
    assert tail(tmp_path, 0) == tail(tmp_path, -1) == []


def test_nothing_there_is_no_line(tmp_path: Path) -> None:
    assert tail(tmp_path, 5) == tail(tmp_path / "nowhere", 5) == []
    os.mkfifo(tmp_path / "current.log")
    assert tail(tmp_path, 5) == []


def test_a_short_file_is_preceded_by_its_forerunners(tmp_path: Path) -> None:
    _current(tmp_path, b"now\n")
    (tmp_path / "current.log.1").write_bytes(b"before\nhalf ")
    (tmp_path / "current.log.2").write_bytes(b"long ago\n")
    assert tail(tmp_path, 9) == ["long ago", "before", "half now"]
    assert tail(tmp_path, 9, max_bytes=12) == ["half now"]


def test_no_more_than_is_allowed_is_read(tmp_path: Path) -> None:
    _current(tmp_path, b"x" * 500 + b"\nlast\n")
    assert tail(tmp_path, 9, max_bytes=100) == ["last"]
    _current(tmp_path, b"x" * 500)
    assert tail(tmp_path, 9, max_bytes=100) == ["x" * 100]
    assert tail(tmp_path, 9, max_bytes=0) == []


def test_o_logs_1_any_bytes_become_text_that_is_safe_to_show(tmp_path: Path) -> None:
    _current(tmp_path, b"\x88\xff\x00\n\x1b[2J\x1b]0;title\x07\n" + "ä\u202eb\u009b\n".encode())
    assert tail(tmp_path, 9) == [
        "\ufffd\ufffd\\x00",
        "\\x1b[2J\\x1b]0;title\\x07",
        "ä\\u202eb\\x9b",
    ]


def test_o_logs_1_a_progress_bar_shows_its_last_state(tmp_path: Path) -> None:
    bar = b"".join(b"\rloading %d/10000" % n for n in range(10_001))
    _current(tmp_path, b"begin\r\n" + bar + b"\nend\n" + b"50%\r60%\r")
    assert tail(tmp_path, 9) == ["loading 10000/10000", "end", "60%"]


@given(st.binary(max_size=300), st.integers(-1, 20), st.integers(0, 400))
def test_whatever_is_in_it(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, lines: int, most: int
) -> None:
    directory = _current(tmp_path_factory.getbasetemp(), data)
    shown = tail(directory, lines, most)
    assert len(shown) <= max(0, lines)
    assert all(line.replace("\t", "").isprintable() for line in shown)


@given(st.text())
def test_what_is_visible_stays_so(text: str) -> None:
    assert visible(text).replace("\t", "").isprintable()
    assert visible(visible(text)) == visible(text)


def test_a_file_that_somebody_appends_to_is_copied_and_emptied(tmp_path: Path) -> None:
    with (tmp_path / "current.log").open("ab", buffering=0) as unit:
        unit.write(b"a" * 99)
        assert rotate_copytruncate(tmp_path, 100, 2) is Rotation.NOT_NEEDED
        for letter in (b"b", b"c", b"d", b"e"):
            unit.write(letter * 100)
            assert rotate_copytruncate(tmp_path, 100, 2) is Rotation.ROTATED
        unit.write(b"now\n")
    found = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert found == {
        "current.log": b"now\n",
        "current.log.1": b"e" * 100,
        "current.log.2": b"d" * 100,
    }


def test_where_no_former_file_is_wanted_none_is_made(tmp_path: Path) -> None:
    assert rotate_copytruncate(tmp_path, 100, 0) is Rotation.NOT_NEEDED
    _current(tmp_path, b"x" * 100)
    assert rotate_copytruncate(tmp_path, 100, 0) is Rotation.ROTATED
    assert [path.name for path in tmp_path.iterdir()] == ["current.log"]
    assert (tmp_path / "current.log").stat().st_size == 0
