"""A worker's output in files of bounded size, written by a process that outlives the supervisor.

A pipe that only the supervisor reads would break the worker's next print at its death, and block
it when the supervisor stands. So each life has a log process of its own (see log_program.py), which
ends when nobody can write any more. We hold a reading end too, but only so that the pipe stays
whole where the log process is killed (see log_guard.py).
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Self

from stepwarden.core.evidence import ProcessId
from stepwarden.edge import log_program
from stepwarden.edge.launcher import Launcher, LaunchSpec, SpawnFailed
from stepwarden.edge.log_program import CURRENT, former, make_room, open_log

CAPTURE_LIMIT_SECONDS = 10.0
"""A log process that does not run within this is a failed start of its worker."""

_PIPE_BYTES = 1 << 20  # a burst goes in here while the log process waits for a core
_COPY_BYTES = 1 << 20
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class CaptureSpec:
    """Where output goes: an absolute directory, bytes of one file, how many former ones stay."""

    directory: Path
    max_file: int
    keep: int


class Capture:
    """A running log process, and our copies of the ends to write to and to read from.

    Close it (or leave its `with` block) once the worker has started or failed to: as long as we
    hold `output_fd`, the log process does not end.
    """

    def __init__(self, process: ProcessId, output_fd: int, reader: int) -> None:
        self.process = process
        self.output_fd = output_fd
        self._open = [output_fd, reader]
        self._reader = reader

    def take_reader(self) -> int:
        """Our end to read from; it is the caller's to close from now on."""
        self._open.remove(self._reader)
        return self._reader

    def close(self) -> None:
        """Let go of our ends; a log process without a worker ends by that."""
        for descriptor in self._open:
            os.close(descriptor)
        self._open.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


async def open_capture(
    launcher: Launcher, spec: CaptureSpec, limit: float = CAPTURE_LIMIT_SECONDS
) -> Capture:
    """Start a log process within `limit` seconds of its turn; SpawnFailed where it cannot be.

    A directory that cannot be written to is no failure: the worker runs, its output is dropped.
    """
    try:
        reader, writer = os.pipe()
    except OSError as error:
        raise SpawnFailed(f"cannot capture the output: {error}") from None
    with suppress(OSError):  # more than this user may have in pipes
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    try:
        process = await launcher.spawn(log_process(spec, reader), limit)
    except BaseException as error:
        os.close(writer)
        os.close(reader)
        if isinstance(error, SpawnFailed):
            raise SpawnFailed(f"cannot capture the output: {error}") from None
        raise
    return Capture(process, writer, reader)


def log_process(spec: CaptureSpec, reader: int) -> LaunchSpec:
    """What starts a log process that reads from `reader`."""
    program = os.path.abspath(log_program.__file__)
    settings = [str(spec.directory), str(spec.max_file), str(spec.keep)]
    # Nothing that makes it look like a part of a worker.
    environ = {k: v for k, v in os.environ.items() if not k.startswith("STEPWARDEN_")}
    return LaunchSpec(
        [sys.executable, "-I", "-S", "-E", program, *settings],
        environ,
        cwd="/",
        stdout_path=os.devnull,  # our own, a terminal or a pipe, must not stay open with it
        input_fd=reader,
    )


class Rotation(Enum):
    """What became of a file that somebody else appends to."""

    NOT_NEEDED = "not needed"
    ROTATED = "rotated"
    EMPTIED = "emptied"  # no room for a copy: what it held is lost


def rotate_copytruncate(directory: Path, max_file: int, keep: int) -> Rotation:
    """Where current.log has reached `max_file` bytes: copy it to current.log.1, then empty it.

    For a writer that keeps the file open and appends (a unit with `StandardOutput=append:`).
    Blocks, so call it in a thread. What is written between copy and emptying is lost. On a full
    disk the file is emptied without a copy: it may be what fills the disk. Other OSErrors pass.
    """
    try:
        source = open_log(str(directory / CURRENT), os.O_RDWR)
    except FileNotFoundError:
        return Rotation.NOT_NEEDED
    try:
        if os.fstat(source).st_size < max(1, max_file):
            return Rotation.NOT_NEEDED
        make_room(str(directory), keep)
        copied = keep <= 0 or _copied(source, former(str(directory), 1))
        os.ftruncate(source, 0)
    finally:
        os.close(source)
    return Rotation.ROTATED if copied else Rotation.EMPTIED


def _copied(source: int, path: str) -> bool:
    """False, and nothing is left of it, where the disk has no room."""
    target = open_log(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        offset = 0
        while sent := os.sendfile(target, source, offset, _COPY_BYTES):
            offset += sent
    except OSError as error:
        os.unlink(path)
        if error.errno not in _NO_ROOM:
            raise
        return False
    finally:
        os.close(target)
    return True
