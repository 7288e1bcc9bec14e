"""O-LOGS-2: rotation of a worker's captured output, by others and by two log processes at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from stepwarden.edge import log_program
from stepwarden.edge.log_program import CURRENT
from support import rotations
from support.rotations import Rotation
from support.waiting import wait_for


@contextmanager
def log_process(
    directory: Path, max_file: int = 1 << 30, keep: int = 5
) -> Iterator[subprocess.Popen[bytes]]:
    """A real log process; what is written to its stdin is a worker's output."""
    program = [sys.executable, "-I", "-S", "-E", log_program.__file__]
    settings = [str(directory), str(max_file), str(keep)]
    process = subprocess.Popen([*program, *settings], stdin=subprocess.PIPE)
    assert process.stdin is not None
    try:
        yield process
        process.stdin.close()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


def print_to(process: subprocess.Popen[bytes], data: bytes) -> None:
    assert process.stdin is not None
    left = memoryview(data)
    while left:
        left = left[os.write(process.stdin.fileno(), left) :]


def lines(numbers: range, name: str = "line") -> bytes:
    return b"".join(b"%s %d\n" % (name.encode(), number) for number in numbers)


def holds(path: Path, data: bytes) -> bool:
    return path.exists() and path.read_bytes() == data


@pytest.mark.parametrize("rotate", rotations.ALL)
def test_o_logs_2_output_follows_its_path(rotate: Rotation, tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    current = directory / CURRENT
    with log_process(directory) as process:
        for begin in (0, 10, 20):
            some = lines(range(begin, begin + 10))
            print_to(process, some)
            wait_for(partial(holds, current, some))
            former = rotate(current)
            assert former is None or former.read_bytes() == some


def test_o_logs_2_signals_of_rotation_end_no_log_process(tmp_path: Path) -> None:
    """`systemctl kill -s USR1` reaches the whole service, this process too."""
    with log_process(tmp_path) as process:
        print_to(process, lines(range(1)))
        wait_for((tmp_path / CURRENT).exists)
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP):
            process.send_signal(number)
        print_to(process, lines(range(1, 2)))
    assert (tmp_path / CURRENT).read_bytes() == lines(range(2))


def test_o_logs_2_two_log_processes_rotate_one_directory_and_lose_and_mix_nothing(
    tmp_path: Path,
) -> None:
    """An earlier life's left-over child prints on beside the new life."""
    count, names = 30_000, ("one", "other")
    with log_process(tmp_path, 40_000, 1000) as one, log_process(tmp_path, 40_000, 1000) as other:
        for begin in range(0, count, 1000):
            for name, process in zip(names, (one, other), strict=True):
                data = lines(range(begin, begin + 1000), name)
                # In pieces that end anywhere, as a pipe gives them.
                for at in range(0, len(data), 3001):
                    print_to(process, data[at : at + 3001])
    formers = sorted(tmp_path.glob(f"{CURRENT}.*"), key=lambda path: -int(path.suffix[1:]))
    files = [*formers, tmp_path / CURRENT]
    assert len(files) > 10
    found = b"".join(path.read_bytes() for path in files).splitlines(keepends=True)
    for name in names:
        mine = [line for line in found if line.startswith(name.encode() + b" ")]
        assert sorted(mine) == sorted(lines(range(count), name).splitlines(keepends=True))
    assert len(found) == 2 * count


def test_a_line_without_end_is_written_after_a_moment(tmp_path: Path) -> None:
    current = tmp_path / CURRENT
    with log_process(tmp_path) as process:
        print_to(process, b"one\nPassword: ")
        wait_for(partial(holds, current, b"one\nPassword: "))
        print_to(process, b"x" * (1 << 17))
        wait_for(lambda: current.stat().st_size == 14 + (1 << 17))
        print_to(process, b"the end")
    assert current.read_bytes().endswith(b"xxxthe end")
