"""The log process: reads what one worker prints, always, and writes it to files of bounded size.

Run as a plain file by `python -I -S -E`: DIRECTORY MAX_FILE KEEP; imports nothing of ours. The
worker's pipe is descriptor 0, and nobody else reads from it. It lives as long as anybody can write
to the pipe, whatever becomes of the supervisor.

Reading never waits for the disk: a thread of its own writes. What a full, read-only or slow disk
does not take is dropped, the oldest first, and counted, and the file says so once it can.

Lines are written whole, for an earlier life of the worker may have left somebody who prints into
the same file; a line without end is waited for a moment only.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import stat
import sys
import threading

BUFFER_BYTES = 8 << 20
"""So much output waits for the disk before the oldest is dropped."""

PATIENCE_SECONDS = 0.25
"""A full buffer holds the worker up for this long, once for each time that the disk takes it.

A burst finds room by that where only a core was short; a disk that hangs costs it once.
"""

READ_BYTES = 1 << 16
HELD_BYTES = 1 << 16
HELD_SECONDS = 0.2
"""So much of a line that has no end yet is held back, for so long at most."""

RETRY_SECONDS = 1.0
LAST_WORDS_SECONDS = 30.0
"""After the worker's end, a disk that is only slow gets so long to take what is left."""

CURRENT = "current.log"
DIRECTORY_MODE = 0o750
FILE_MODE = 0o640


def main() -> int:
    """Read until nobody can write any more."""
    # The worker would break at its next print. USR1 may be sent to the whole of a service.
    for ignored in ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2"):
        signal.signal(getattr(signal, ignored), signal.SIG_IGN)
    directory, max_file, keep = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    os.chdir("/")
    backlog = Backlog(BUFFER_BYTES)
    writer = Writer(backlog, LogFile(directory, max_file, keep))
    thread = threading.Thread(target=writer.run, daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no thread to be had: the worker must be able to print all the same
        while os.read(0, READ_BYTES):
            continue
        return 1
    while data := os.read(0, READ_BYTES):
        backlog.add(data)
    backlog.end()
    thread.join(LAST_WORDS_SECONDS)
    return 0


class Backlog:
    """What was read and is not yet written: `most` bytes; beyond that the oldest is dropped."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._changed = threading.Condition()
        self._data = bytearray()
        self._dropped = 0
        self._ended = False
        self._hopeful = True

    def add(self, data: bytes) -> None:
        """Append; a full backlog waits for PATIENCE_SECONDS, and not again until it was taken."""
        with self._changed:
            if self._hopeful and len(self._data) + len(data) > self._most:
                self._hopeful = self._changed.wait_for(lambda: not self._data, PATIENCE_SECONDS)
            self._data += data
            excess = len(self._data) - self._most
            if excess > 0:
                del self._data[:excess]
                self._dropped += excess
            self._changed.notify_all()

    def end(self) -> None:
        """Nothing more will come."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def take(self, held: bool = False) -> tuple[int, bytearray] | None:
        """How many bytes were dropped, and all that followed them; waits. None: it was all.

        `held`: the caller holds a line without end. Then it waits for HELD_SECONDS at most, for an
        end of the line; there may be nothing new.
        """
        with self._changed:
            if held:
                self._changed.wait_for(self._ends_a_line, HELD_SECONDS)
            else:
                self._changed.wait_for(lambda: self._data or self._ended)
            if self._ended and not self._data:
                return None
            taken = self._dropped, self._data
            self._dropped, self._data, self._hopeful = 0, bytearray(), True
            self._changed.notify_all()
            return taken

    def _ends_a_line(self) -> bool:
        return self._ended or len(self._data) > HELD_BYTES or b"\n" in self._data

    def ends_within(self, seconds: float) -> bool:
        """Wait; True as soon as nothing more will come."""
        with self._changed:
            return self._changed.wait_for(lambda: self._ended, seconds)


class Writer:
    """Moves a backlog into a file, and tries again for as long as the worker lives."""

    def __init__(self, backlog: Backlog, log: LogFile, retry: float = RETRY_SECONDS) -> None:
        self._backlog = backlog
        self._log = log
        self._retry = retry
        self._reason = ""
        self._in_line = False
        self._held = bytearray()

    def run(self) -> None:
        """Until the end of the backlog, or a disk that takes nothing after it."""
        while (taken := self._backlog.take(bool(self._held))) is not None:
            dropped, data = taken
            if not dropped:
                self._reason = ""
            elif not (self._put(self._release()) and self._put(self._note(dropped))):
                return
            if not self._put(self._whole_lines(data)):
                return
        self._put(self._release())

    def _whole_lines(self, data: bytearray) -> bytearray:
        """What is held with `data` behind it, up to the last end of a line; the rest is held."""
        waited = bool(self._held) and b"\n" not in data
        data[:0] = self._release()
        end = data.rfind(b"\n") + 1
        if not waited and len(data) - end <= HELD_BYTES:
            self._held = data[end:]
            del data[end:]
        return data

    def _release(self) -> bytearray:
        held, self._held = self._held, bytearray()
        return held

    def _note(self, dropped: int) -> bytes:
        reason, self._reason = self._reason or "the disk is too slow", ""
        start = "\n" if self._in_line else ""
        text = f"{start}[stepwarden: {dropped} bytes of output were dropped here: {reason}]\n"
        return text.encode("utf-8", "backslashreplace")

    def _put(self, data: bytes | bytearray) -> bool:
        """False where the worker has ended and the disk still takes nothing."""
        left = memoryview(data)
        while left:
            try:
                left = left[self._log.write(left) :]
            except OSError as error:
                self._reason = error.strerror or str(error)
                if self._backlog.ends_within(self._retry):
                    return False
        if data:
            self._in_line = data[-1:] != b"\n"
        return True


class LogFile:
    """`directory`/current.log, and its forerunners current.log.1 (the youngest) to .`keep`.

    None grows beyond `max_file` bytes. Others may write to it too, or take it away.
    """

    def __init__(self, directory: str, max_file: int, keep: int) -> None:
        self._directory = directory
        self._path = os.path.join(directory, CURRENT)
        self._max = max(1, max_file)
        self._keep = keep
        self._descriptor: int | None = None

    def write(self, data: memoryview) -> int:
        """Append a first part of `data`, in whole lines where a new file follows; its length.

        OSError where it cannot be written now.
        """
        descriptor = self._opened()
        size = os.fstat(descriptor).st_size
        part = self._fitting(data, self._max - size)
        if part or not size:
            return os.write(descriptor, part or data[: self._max])
        self._rotate()
        return 0

    def close(self) -> None:
        """Let go of the file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    @staticmethod
    def _fitting(data: memoryview, room: int) -> memoryview:
        if len(data) <= room:
            return data
        return data[: bytes(data[: max(0, room)]).rfind(b"\n") + 1]

    def _opened(self) -> int:
        """The file that has the name now."""
        if self._descriptor is not None and not self._is_current(self._descriptor):
            self.close()
        if self._descriptor is None:
            os.makedirs(self._directory, DIRECTORY_MODE, exist_ok=True)
            self._descriptor = open_log(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        return self._descriptor

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), os.stat(self._path))
        except FileNotFoundError:
            return False

    def _rotate(self) -> None:
        # An earlier life of the worker may have left somebody who prints still, with a log process.
        lock = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self._descriptor is not None and self._is_current(self._descriptor):
                make_room(self._directory, self._keep)
                move_away(self._directory, self._keep)
        finally:
            os.close(lock)


def open_log(path: str, flags: int) -> int:
    """Open a log file; OSError where something else than a plain file is there."""
    # A pipe or a device in its place must not block us.
    safe = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    descriptor = os.open(path, flags | safe, FILE_MODE)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "not a plain file", path)


def make_room(directory: str, keep: int) -> None:
    """Give each former file the next number, and remove those beyond `keep`; .1 is free then."""
    numbers = [int(name.rpartition(".")[2]) for name in os.listdir(directory) if is_former(name)]
    for number in sorted(numbers, reverse=True):
        path = former(directory, number)
        if number >= keep:
            os.unlink(path)
        else:
            os.rename(path, former(directory, number + 1))


def move_away(directory: str, keep: int) -> None:
    """Make the current file a former one; where none is kept, remove it."""
    path = os.path.join(directory, CURRENT)
    if keep > 0:
        os.rename(path, former(directory, 1))
    else:
        os.unlink(path)


def former(directory: str, number: int) -> str:
    """The path of a former file."""
    return os.path.join(directory, f"{CURRENT}.{number}")


def is_former(name: str) -> bool:
    """True for the name of a former file."""
    number = name.removeprefix(f"{CURRENT}.")
    return number != name and number.isascii() and number.isdigit() and number[0] != "0"


if __name__ == "__main__":
    sys.exit(main())
