"""One daemon per state directory: a lock that the kernel gives back however the holder ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from stepwarden.errors import AlreadyRunningError, RefusedError

LOCK_NAME = "lock"


class InstanceLock:
    """Holds `state_dir`/lock from construction to `release`."""

    def __init__(self, state_dir: Path) -> None:
        """AlreadyRunningError names the holder; RefusedError where the file cannot be used."""
        self._path = state_dir / LOCK_NAME
        try:
            state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = os.open(
                self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
            )
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
            holder = os.pread(self._descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(self._descriptor)
            raise AlreadyRunningError(
                f"another stepwarden (pid {holder or 'unknown'}) holds {self._path};"
                " one daemon per state directory"
            ) from error
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, f"{os.getpid()}\n".encode("ascii"), 0)

    def release(self) -> None:
        """Give the lock back."""
        os.close(self._descriptor)
