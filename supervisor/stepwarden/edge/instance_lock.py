"""One daemon per state directory: a lock that the kernel gives back however the holder ends."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

from stepwarden.errors import AlreadyRunningError, RefusedError

LOCK_NAME = "lock"

_TAKES_NOTHING = {errno.EROFS, errno.ENOSPC, errno.EDQUOT}


class InstanceLock:
    """Holds `state_dir`/lock from construction to `release`.

    A directory that takes nothing any more (read-only, full) is locked too, for that is no reason
    to leave workers without supervision.
    """

    def __init__(self, state_dir: Path) -> None:
        """AlreadyRunningError names the holder; RefusedError where the file cannot be used."""
        self._path = state_dir / LOCK_NAME
        try:
            state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = _open(self._path)
        except (FileExistsError, NotADirectoryError) as error:
            raise RefusedError(
                f"cannot use the state directory {state_dir}: a file is in the way;"
                " supervisor.state_dir must be a directory"
            ) from error
        except OSError as error:
            raise RefusedError(
                f"cannot use the state directory {state_dir}: {error.strerror};"
                " supervisor.state_dir must be a directory that this user may write to"
            ) from error
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = _read(self._descriptor)
            os.close(self._descriptor)
            raise AlreadyRunningError(
                f"another stepwarden (pid {holder or 'unknown'}) holds {self._path};"
                " one daemon per state directory"
            ) from error
        with suppress(OSError):  # the pid is for people; the lock is held without it
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode("ascii"), 0)

    def release(self) -> None:
        """Give the lock back."""
        os.close(self._descriptor)


def _open(path: Path) -> int:
    """The lock file; where no file can be made or written any more, as it is, or its directory."""
    common = os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | common, 0o600)
    except OSError as error:
        if error.errno not in _TAKES_NOTHING:
            raise
    try:
        return os.open(path, os.O_RDONLY | common)
    except FileNotFoundError:
        return os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def _read(descriptor: int) -> str:
    with suppress(OSError):
        return os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
    return ""
