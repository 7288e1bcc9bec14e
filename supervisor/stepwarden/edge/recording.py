"""The recording of what the judge saw, written to compressed files by a thread of its own.

The loop puts what came of each call into a bounded queue and goes on; the data is immutable, so
nothing is copied. What the disk does not take, or the thread does not in time, is lost; where a
worker stands is written again then. The oldest files go when all are larger than they may be.
"""

from __future__ import annotations

import errno
import os
import queue
import threading
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from stepwarden import __version__
from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline
from stepwarden.core.event import Event
from stepwarden.core.worker import Call, WorkerState
from stepwarden.replay.files import SUFFIX
from stepwarden.replay.lines import Head, Writer
from stepwarden.waiting import timeout_for

FLUSH_SECONDS = 1.0
"""What a daemon that is killed may lose of its recording, beside what the disk had not got."""

MAX_QUEUED = 20_000
RETRY_SECONDS = 30.0
PARTS = 8
"""So many files make up the size that all together may have."""

FREE_SHARE = 0.1
"""The recording takes no more while less than this part of its file system is free: the state of
the workers lies there too, and comes first."""

_LEVEL = 1  # the loop's thread waits for the interpreter lock meanwhile
_GZIP = 31


@dataclass(frozen=True, slots=True)
class Came:
    """What came of one call; `forget`: this worker is not configured any more."""

    after: WorkerState
    call: Call | None
    events: tuple[Event, ...] = ()
    forget: bool = False


class Recording:
    """Writes below `directory` (mode 0700, files 0600), at most `max_bytes` in all.

    `trouble`: why nothing can be written, "" while it can; to be read by any thread.
    """

    def __init__(self, directory: Path, max_bytes: int, clock: Clock) -> None:
        self._directory = directory
        self._max_bytes = max_bytes
        self._clock = clock
        self.trouble = ""
        # Not a SimpleQueue: after SIGSTOP and SIGCONT its timed get was seen to wait for ever.
        self._queue: queue.Queue[Came | None] = queue.Queue()
        self._writer = Writer()
        self._file: _File | None = None
        self._retry_at = Deadline(clock.monotonic())
        self._run = f"{clock.wall():%Y%m%dT%H%M%S}-{os.getpid()}"
        self._number = 0
        self._thread = threading.Thread(target=self._work, name="recording", daemon=True)
        self._thread.start()

    def put(self, came: Came) -> None:
        """Record this; never waits."""
        if self._queue.qsize() < MAX_QUEUED:
            self._queue.put(came)

    def close(self, seconds: float = 2.0) -> None:
        """Write what is queued, for at most `seconds`."""
        deadline = Deadline.after(self._clock.monotonic(), seconds)
        self._queue.put(None)
        self._thread.join(timeout_for(deadline, self._clock))

    def _work(self) -> None:
        more = True
        while more:
            batch, more = self._batch()
            if batch:
                self._write(batch)
        self._leave_file()

    def _batch(self) -> tuple[list[Came], bool]:
        """What comes within the time between two writes, and whether there may be more."""
        until = Deadline.after(self._clock.monotonic(), FLUSH_SECONDS)
        batch: list[Came] = []
        while True:
            try:
                came = self._queue.get(timeout=timeout_for(until, self._clock))
            except queue.Empty:
                return batch, True
            if came is None:
                return batch, False
            batch.append(came)

    def _lines(self, came: Came) -> list[str]:
        if came.forget:
            self._writer.forget(came.after.name)
            return []
        try:
            return self._writer.write(came.after, came.call, came.events)
        except Exception as error:
            # Whatever is wrong here, the others are recorded; this one is told anew with its next.
            self._writer.forget(came.after.name)
            self.trouble = f"a fault of ours: {type(error).__name__}: {error}"
            return []

    def _write(self, batch: Sequence[Came]) -> None:
        if self._file is not None and self._file.size > self._max_bytes // PARTS:
            self._leave_file()
        try:
            if self._file is None and self._retry_at.passed(self._clock.monotonic()):
                self._file = self._opened()
            if self._file is not None:
                _leave_room(self._directory)
            # Also without a file: the next one begins with where all stand then.
            lines = [line for came in batch for line in self._lines(came)]
            if self._file is not None:
                self._file.append(lines)
        except (OSError, ValueError) as error:
            self._failed(error)

    def _opened(self) -> _File:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._make_room()
        self._number += 1
        file = _File(self._directory / f"{self._run}-{self._number:05}{SUFFIX}")
        file.append(self._writer.begin(self._head(self._clock.wall())))
        self.trouble = ""
        return file

    def _head(self, wall: datetime) -> Head:
        return Head(self._run, __version__, wall.timestamp(), self._clock.monotonic())

    def _make_room(self) -> None:
        files = sorted(self._directory.glob(f"*{SUFFIX}"))
        sizes = {path: path.stat().st_size for path in files}
        for path in files:
            if sum(sizes.values()) <= self._max_bytes * (PARTS - 1) // PARTS:
                return
            del sizes[path]
            path.unlink()

    def _failed(self, error: Exception) -> None:
        self._leave_file()
        self._retry_at = Deadline.after(self._clock.monotonic(), RETRY_SECONDS)
        self.trouble = f"{self._directory}: {getattr(error, 'strerror', None) or error}"

    def _leave_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()


def _leave_room(directory: Path) -> None:
    disk = os.statvfs(directory)
    if disk.f_bavail < disk.f_blocks * FREE_SHARE:
        raise OSError(errno.ENOSPC, f"less than {FREE_SHARE:.0%} of its file system is free")


class _File:
    """One compressed file; what is appended can be read at once."""

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)
        self._packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
        self._torn = False
        self.size = 0

    def append(self, lines: Sequence[str]) -> None:
        """Write these lines, compressed; OSError where the disk does not take them all."""
        packed = self._packer.compress("".join(lines).encode("utf-8", "surrogatepass"))
        self._write(packed + self._packer.flush(zlib.Z_SYNC_FLUSH))

    def close(self) -> None:
        """End the file; behind what was torn nothing more can be read, so nothing is written."""
        try:
            if not self._torn:
                self._write(self._packer.flush())
        finally:
            os.close(self._descriptor)

    def _write(self, packed: bytes) -> None:
        left = memoryview(packed)
        self._torn = True
        while left:
            written = os.write(self._descriptor, left)
            self.size += written
            left = left[written:]
        self._torn = False
