"""The parts of the log process: its backlog, and its files on a disk that does not do as told."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from stepwarden.edge.log_program import Backlog, LogFile, Writer
from support.waiting import wait_for


def _log(directory: Path, max_file: int = 100, keep: int = 3) -> LogFile:
    return LogFile(str(directory), max_file, keep)


def _write(log: LogFile, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[log.write(left) :]


def _files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


def test_a_backlog_keeps_the_newest_and_counts_the_rest() -> None:
    backlog = Backlog(10)
    backlog.add(b"0123456")
    backlog.add(b"789abc")
    assert backlog.take() == (3, bytearray(b"3456789abc"))
    backlog.add(b"d")
    backlog.end()
    assert backlog.take() == (0, bytearray(b"d"))
    assert backlog.take() is None
    assert backlog.ends_within(0.0)


def test_files_end_with_whole_lines_and_never_grow_beyond_their_size(tmp_path: Path) -> None:
    log = _log(tmp_path)
    lines = [b"line %d\n" % number for number in range(60)]
    for line in lines[:30]:
        _write(log, line)
    _write(log, b"".join(lines[30:]))
    log.close()
    found = _files(tmp_path)
    assert set(found) == {"current.log", "current.log.1", "current.log.2", "current.log.3"}
    assert all(len(data) <= 100 and data.endswith(b"\n") for data in found.values())
    order = ["current.log.3", "current.log.2", "current.log.1", "current.log"]
    assert b"".join(lines).endswith(b"".join(found[name] for name in order))


def test_a_line_without_end_is_split_and_loses_nothing(tmp_path: Path) -> None:
    log = _log(tmp_path, keep=100)
    data = os.urandom(2345).replace(b"\n", b" ")
    _write(log, data)
    found = _files(tmp_path)
    assert len(found) == 24
    names = [f"current.log.{number}" for number in range(23, 0, -1)]
    assert b"".join(found[name] for name in [*names, "current.log"]) == data


def test_no_former_file_where_none_is_wanted_and_fewer_where_fewer_are(tmp_path: Path) -> None:
    (tmp_path / "current.log.9").write_bytes(b"of more generous days")
    (tmp_path / "current.log.gz").write_bytes(b"not ours")
    log = _log(tmp_path, keep=0)
    _write(log, b"a" * 99 + b"\n" + b"b" * 99 + b"\n")
    assert _files(tmp_path) == {"current.log": b"b" * 99 + b"\n", "current.log.gz": b"not ours"}


def test_it_goes_on_where_an_earlier_life_ended(tmp_path: Path) -> None:
    (tmp_path / "current.log").write_bytes(b"before\n")
    log = _log(tmp_path)
    _write(log, b"after\n")
    assert _files(tmp_path) == {"current.log": b"before\nafter\n"}


def test_a_file_that_is_taken_away_is_made_anew(tmp_path: Path) -> None:
    log = _log(tmp_path / "new" / "directory")
    _write(log, b"one\n")
    (tmp_path / "new" / "directory" / "current.log").unlink()
    _write(log, b"two\n")
    assert _files(tmp_path / "new" / "directory") == {"current.log": b"two\n"}
    assert (tmp_path / "new" / "directory").stat().st_mode & 0o777 == 0o750


def test_two_that_write_to_one_directory_share_its_files(tmp_path: Path) -> None:
    one, other = _log(tmp_path), _log(tmp_path)
    for number in range(40):
        _write(one, b"one %d\n" % number)
        _write(other, b"other %d\n" % number)
    found = _files(tmp_path)
    assert all(len(data) <= 100 for data in found.values())
    assert all(len(data) > 50 for name, data in found.items() if name != "current.log")


@pytest.mark.parametrize("kind", ["pipe", "directory", "link"])
def test_something_else_in_the_place_of_the_file_blocks_nobody(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "current.log"
    if kind == "pipe":
        os.mkfifo(path)
        reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError):  # noqa: PT011 - each has its own errno
        _write(_log(tmp_path), b"x")
    assert not (tmp_path / "elsewhere").exists()
    if kind == "pipe":
        os.close(reader)


def _running(backlog: Backlog, log: LogFile) -> tuple[Writer, threading.Thread]:
    writer = Writer(backlog, log, retry=0.01)
    thread = threading.Thread(target=writer.run)
    thread.start()
    return writer, thread


def test_what_a_disk_did_not_take_is_said_once_it_can(tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    directory.write_text("in the way")
    backlog = Backlog(50)
    writer, thread = _running(backlog, _log(directory, 10_000))
    backlog.add(b"first, and in the middle of")
    wait_for(lambda: writer._reason)  # it was tried
    for number in range(100):
        backlog.add(b"line %2d\n" % number)
    directory.unlink()
    wait_for((directory / "current.log").exists)
    backlog.add(b"last\n")
    backlog.end()
    thread.join()
    text = (directory / "current.log").read_text()
    head, note, *rest = text.splitlines()
    assert head == "first, and in the middle of"
    assert note == "[stepwarden: 750 bytes of output were dropped here: File exists]"
    assert rest[-3:] == ["line 98", "line 99", "last"]
    assert text.count("dropped") == 1


def test_a_disk_that_takes_nothing_does_not_keep_it_beyond_the_end(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    backlog = Backlog(50)
    _, thread = _running(backlog, _log(tmp_path / "file"))
    backlog.add(b"x")
    backlog.end()
    thread.join(20)
    assert not thread.is_alive()


@pytest.fixture
def little_disk(tmp_path: Path) -> Iterator[Path]:
    where = tmp_path / "disk"
    where.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"none", bytes(where), b"tmpfs", 0, b"size=64k") != 0:
        pytest.skip("may not mount")
    yield where
    libc.umount2(bytes(where), 2)


def test_a_full_disk_drops_output_until_there_is_room(little_disk: Path) -> None:
    ballast = little_disk / "ballast"
    ballast.write_bytes(b"x" * (60 << 10))
    backlog = Backlog(10 << 10)
    log = _log(little_disk, 1 << 20)
    writer, thread = _running(backlog, log)
    backlog.add(b"x" * (8 << 10) + b"\n")
    wait_for(lambda: writer._reason)
    for number in range(2000):
        backlog.add(b"line %d\n" % number)
    ballast.unlink()
    wait_for(lambda: b"line 1999\n" in (little_disk / "current.log").read_bytes())
    backlog.end()
    thread.join()
    log.close()
    text = (little_disk / "current.log").read_text()
    assert "bytes of output were dropped here: No space left on device]" in text
