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
    """Holds `state_dir` and the file `lock` in it from construction to `release`.

    Both: the file is there for all file systems and names the holder; the directory is still held
    when somebody takes the file away, or when none could be made at first (read-only, full: that
    is no reason to leave workers without supervision).
    """

    def __init__(self, state_dir: Path) -> None:
        """AlreadyRunningError names the holder; RefusedError where the file cannot be used."""
        self._path = state_dir / LOCK_NAME
        self._held: list[int] = []
        try:
            state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._take(state_dir)
        except BaseException as error:
            self.release()
            if isinstance(error, OSError):
                raise _refused(state_dir, error) from error
            raise

    def release(self) -> None:
        """Give the lock back."""
        for descriptor in self._held:
            os.close(descriptor)
        self._held.clear()

    def _take(self, state_dir: Path) -> None:
        file = _open(self._path)
        if file is not None:
            self._held.append(file)
        directory_held = self._lock_directory(state_dir, alone=file is None)
        if file is None:
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise self._running() from error
        except OSError as error:
            if not directory_held:
                raise self._running() from error
        with suppress(OSError):  # the pid is for people; the lock is held without it
            os.ftruncate(file, 0)
            os.pwrite(file, f"{os.getpid()}\n".encode("ascii"), 0)

    def _lock_directory(self, state_dir: Path, *, alone: bool) -> bool:
        """False where that cannot be, as on some file systems; without a file it must."""
        try:
            directory = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            self._held.append(directory)
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise self._running() from error
        except OSError:
            if alone:
                raise
            return False
        return True

    def _running(self) -> AlreadyRunningError:
        return AlreadyRunningError(
            f"another stepwarden (pid {_holder(self._path) or 'unknown'}) holds {self._path};"
            " one daemon per state directory"
        )


def _refused(state_dir: Path, error: OSError) -> RefusedError:
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return RefusedError(
            f"cannot use the state directory {state_dir}: a file is in the way;"
            " supervisor.state_dir must be a directory"
        )
    return RefusedError(
        f"cannot use the state directory {state_dir}: {error.strerror};"
        " supervisor.state_dir must be a directory that this user may write to"
    )


def _open(path: Path) -> int | None:
    """The lock file; as it is where none can be written any more, None where there is none then."""
    common = os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | common, 0o600)
    except OSError as error:
        if error.errno not in _TAKES_NOTHING:
            raise
    try:
        return os.open(path, os.O_RDONLY | common)
    except FileNotFoundError:
        return None


def _holder(path: Path) -> str:
    """The pid that the file names; "" for none."""
    with suppress(OSError):
        return path.read_bytes()[:32].decode("ascii", "replace").strip()
    return ""
