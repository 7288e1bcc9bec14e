"""The supervisor's own log in a file, under all that log rotation does to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from stepwarden.clock import SystemClock
from stepwarden.edge import log_file
from stepwarden.edge.log_file import LogFile
from stepwarden.edge.log_writer import MAX_LINES, LogWriter, json_note
from support import rotations
from support.rotations import Rotation
from support.waiting import wait_for


@contextmanager
def logging_to(path: Path) -> Iterator[LogWriter]:
    writer = LogWriter(LogFile(path), SystemClock(), json_note)
    yield writer
    writer.close(30)


def emit(writer: LogWriter, numbers: range) -> None:
    for number in numbers:
        writer.write(f"record {number}\n")


def records(numbers: range) -> bytes:
    return b"".join(b"record %d\n" % number for number in numbers)


def holds(path: Path, data: bytes) -> bool:
    return path.exists() and path.read_bytes() == data


def descriptors() -> list[str]:
    """Where the descriptors of this process lead."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue
    return found


@pytest.mark.parametrize("rotate", rotations.ALL)
def test_o_logs_2_new_records_go_to_the_file_at_the_path(rotate: Rotation, tmp_path: Path) -> None:
    """No signal is needed; no record is lost, doubled or preceded by NUL bytes."""
    path = tmp_path / "logs" / "own.log"
    with logging_to(path) as writer:
        begin = 0
        for _ in range(3):
            emit(writer, first := range(begin, begin + 10))
            wait_for(partial(holds, path, records(first)))
            former = rotate(path)
            assert former is None or former.read_bytes() == records(first)
            begin += 10
        assert not [name for name in descriptors() if "own.log" in name]


def test_o_logs_2_a_signal_makes_the_file_at_once(tmp_path: Path) -> None:
    path = tmp_path / "own.log"
    with logging_to(path) as writer:
        writer.reopen()
        wait_for(path.exists)
        assert path.read_bytes() == b""
        writer.write("record 0\n")
        wait_for(lambda: holds(path, records(range(1))))


def test_o_logs_2_the_mode_is_exact_under_any_umask(tmp_path: Path) -> None:
    for umask in (0, 0o077):
        path = tmp_path / f"{umask}" / "own.log"
        before = os.umask(umask)
        try:
            with logging_to(path) as writer:
                emit(writer, range(1))
        finally:
            os.umask(before)
        assert path.stat().st_mode & 0o7777 == 0o640
        assert path.parent.stat().st_mode & 0o027 == 0


def test_o_logs_2_a_file_with_a_mode_of_its_own_keeps_it(tmp_path: Path) -> None:
    path = tmp_path / "own.log"
    path.touch(0o604)
    path.chmod(0o604)
    with logging_to(path) as writer:
        emit(writer, range(1))
    assert path.stat().st_mode & 0o7777 == 0o604


def test_o_logs_2_nothing_is_lost_while_it_is_written_and_renamed(tmp_path: Path) -> None:
    path = tmp_path / "own.log"
    count = 4000
    with logging_to(path) as writer:
        for number in range(count):
            emit(writer, range(number, number + 1))
            if number % 500 == 499:
                wait_for(path.exists)
                rotations.rename(path)
    formers = sorted(tmp_path.glob("own.log-*"))
    assert len(formers) == count // 500
    files = [*formers, *([path] if path.exists() else [])]
    assert b"".join(file.read_bytes() for file in files) == records(range(count))


def in_the_way(path: Path, kind: str) -> None:
    if kind == "a file for its directory":
        path.parent.rmdir()
        path.parent.touch()
    elif kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a directory":
        path.mkdir()
    else:
        path.symlink_to("elsewhere")


def out_of_the_way(path: Path, kind: str) -> None:
    if kind == "a file for its directory":
        path.parent.unlink()
    elif kind == "a directory":
        path.rmdir()
    else:
        path.unlink()


@pytest.mark.parametrize(
    "kind", ["a file for its directory", "a pipe", "a directory", "a symbolic link"]
)
def test_o_logs_2_records_wait_for_a_file_that_takes_nothing(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "logs" / "own.log"
    path.parent.mkdir()
    in_the_way(path, kind)
    told = ""
    with logging_to(path) as writer:
        emit(writer, range(100))
        while not told:
            told = capfd.readouterr().err
        out_of_the_way(path, kind)
        writer.reopen()
        wait_for(lambda: holds(path, records(range(100))))
    assert told.startswith(f"stepwarden: {path}: the log cannot be written: ")
    assert told.count("\n") == 1
    assert capfd.readouterr().err == ""


def test_o_logs_2_what_waits_is_bounded_and_what_was_dropped_is_said(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "own.log"
    path.parent.touch()
    with logging_to(path) as writer:
        emit(writer, range(3 * MAX_LINES))
        path.parent.unlink()
        writer.reopen()
        wait_for(lambda: path.exists() and b"\n" in path.read_bytes())
        writer.write("last\n")
    lines = path.read_text().splitlines()
    (note,) = [json.loads(line) for line in lines if line.startswith("{")]
    kept = [line for line in lines if line.startswith("record")]
    assert len(kept) + note["dropped"] == 3 * MAX_LINES
    assert len(kept) <= MAX_LINES + 501
    assert lines[-1] == "last"


def test_o_logs_2_a_file_that_takes_nothing_holds_up_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_file, "RETRY_SECONDS", 3600.0)
    (tmp_path / "logs").touch()
    writer = LogWriter(LogFile(tmp_path / "logs" / "own.log"), SystemClock())
    emit(writer, range(2000))
    writer.close(60)
    assert not writer._thread.is_alive()


TWO = """
import sys
from pathlib import Path
from stepwarden.clock import SystemClock
from stepwarden.edge.log_file import LogFile
from stepwarden.edge.log_writer import LogWriter
writer = LogWriter(LogFile(Path(sys.argv[1])), SystemClock())
for number in range(3000):
    writer.write(f"{sys.argv[2]} {number} {'x' * (number % 300)}\\n")
writer.close(30)
"""


def test_o_logs_2_two_processes_that_append_to_one_file_mix_no_lines(tmp_path: Path) -> None:
    path = tmp_path / "own.log"
    names = ("one", "other")
    both = [subprocess.Popen([sys.executable, "-c", TWO, str(path), name]) for name in names]
    assert [process.wait(60) for process in both] == [0, 0]
    lines = path.read_text().splitlines()
    assert len(lines) == 6000
    for name in names:
        mine = [line for line in lines if line.startswith(f"{name} ")]
        assert mine == [f"{name} {n} {'x' * (n % 300)}" for n in range(3000)]


def test_o_logs_2_a_file_that_others_make_at_the_same_moment_is_no_trouble(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    together = threading.Barrier(4)
    paths = [tmp_path / str(number) / "own.log" for number in range(100)]

    def write_all() -> None:
        for path in paths:
            together.wait(60)
            LogFile(path).put("line\n")

    threads = [threading.Thread(target=write_all) for _ in range(together.parties)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [path.read_text() for path in paths] == [together.parties * "line\n"] * len(paths)
    assert capfd.readouterr().err == ""
