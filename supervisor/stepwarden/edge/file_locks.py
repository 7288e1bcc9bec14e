"""Is a file locked by anybody? Looked at without disturbing the holder, and without side effects.

POSIX locks (and those of open file descriptions) are asked for by F_GETLK, which takes none. For
flock the kernel has no question: one is taken and given back at once.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from dataclasses import dataclass

_LOCK = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, len, pid
_NAMED_MAJOR_MINOR = 1  # position of DEVICE:INODE behind the pid in a line of /proc/locks


@dataclass(frozen=True, slots=True)
class LockLook:
    """`reason`: why the file is not free, "" where it is. `final`: waiting will not help."""

    reason: str = ""
    final: bool = False


def look_at_lock(path: str) -> LockLook:
    """Never waits for the file's other users; a file that is not there is free.

    It may hang where the file system does.
    """
    try:
        # Opening a device or a named pipe can act or wait. This opens nothing, it only finds it.
        found = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return LockLook()
    except OSError as error:
        return LockLook(f"file {path} cannot be looked at: {error.strerror}", final=True)
    try:
        return _look(found, path)
    finally:
        os.close(found)


def _look(found: int, path: str) -> LockLook:
    if not stat.S_ISREG(os.fstat(found).st_mode):
        return LockLook(f"{path} is no regular file: its locks cannot be looked at", final=True)
    try:
        # Without waiting for whoever holds a lease on it, too.
        file = os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except BlockingIOError:
        return LockLook(f"file {path} is held by a lease")
    except OSError as error:
        return LockLook(f"file {path} cannot be opened: {error.strerror}", final=True)
    try:
        holder = _posix_holder(file)
        if holder is None and _flocked(file):
            holder = _flock_holder(file)
    finally:
        os.close(file)
    if holder is None:
        return LockLook()
    return LockLook(f"file {path} is locked" + (f" by {name_of(holder)}" if holder > 0 else ""))


def name_of(pid: int) -> str:
    """A process as a sentence names it: `pid 4711 (llama-server)`."""
    try:
        with open(f"/proc/{pid:d}/comm", "rb") as file:
            comm = file.read(64).decode("utf-8", "replace").strip()
    except OSError:
        return f"pid {pid}"
    return f"pid {pid} ({comm})"


def _posix_holder(file: int) -> int | None:
    """The pid of a holder; 0 or -1 where the kernel does not tell; None where nobody has one."""
    asked = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        kind, _, _, _, pid = _LOCK.unpack(fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except OSError:  # a file system without locks
        return None
    return None if kind == fcntl.F_UNLCK else int(pid)


def _flocked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno == errno.EWOULDBLOCK  # others: a file system that has no such locks
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def _flock_holder(file: int) -> int:
    """Its pid by /proc/locks; 0 where that does not tell."""
    status = os.fstat(file)
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        with open("/proc/locks", encoding="ascii") as locks:
            lines = [line.split() for line in locks]
    except OSError:
        return 0
    for words in lines:
        if "FLOCK" in words and "->" not in words and device in words:
            return int(words[words.index(device) - _NAMED_MAJOR_MINOR])
    return 0
