"""A worker's environment on its way to systemd: a 0600 file in memory, there for the start alone.

`Environment=` of a unit can be read by every user of the host, and this holds tokens. systemd
reads the file while it starts the worker, before it gives up its rights; then it is removed.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from stepwarden.edge.page_home import SHARED_MEMORY, filesystem_of

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SPECIAL = re.compile(r'(["\\`$])')
_FOLDER = "environments"


def problem_with(env: Mapping[str, str]) -> str | None:
    """Why systemd could not hand this environment over whole; None where it can.

    It drops variables whose names no shell would take, and takes nothing but UTF-8.
    """
    for name, value in env.items():
        if _NAME.fullmatch(name) is None:
            return f"the environment variable {name!r} has a name that systemd does not take"
        if not is_text(value):
            return f"the environment variable {name} is not UTF-8, and systemd takes nothing else"
    return None


def is_text(value: str) -> bool:
    """True for what can be written as UTF-8 and holds no NUL."""
    try:
        return b"\0" not in value.encode("utf-8")
    except UnicodeEncodeError:
        return False


def encode(env: Mapping[str, str]) -> str:
    """The text of an EnvironmentFile that gives exactly this environment.

    In double quotes systemd takes everything literally, newlines too, except these four characters
    behind a backslash.
    """
    quoted = ((name, _SPECIAL.sub(r"\\\1", value)) for name, value in env.items())
    return "".join(f'{name}="{value}"\n' for name, value in quoted)


class EnvironmentFiles:
    """A private directory in memory with the environments of the workers that start just now."""

    def __init__(self, runtime_dir: Path) -> None:
        if filesystem_of(runtime_dir) == "tmpfs":
            self._folder = runtime_dir / _FOLDER
            # What a killed daemon left there is of no use to anybody.
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder.mkdir(mode=0o700)
        else:
            self._folder = Path(tempfile.mkdtemp(prefix="stepwarden-", dir=SHARED_MEMORY))

    def write(self, unit: str, env: Mapping[str, str]) -> Path:
        """Write the environment of a unit; returns the path of the file. Raises OSError."""
        path = self._path(unit)
        self._folder.mkdir(mode=0o700, exist_ok=True)  # a clean-up may have taken it away
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "w", encoding="utf-8", newline="") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(encode(env))
        return path

    def remove(self, unit: str) -> None:
        """Take the file away if it is there. Never raises."""
        with suppress(OSError):
            self._path(unit).unlink()

    def close(self) -> None:
        """Take the directory away. Never raises."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _path(self, unit: str) -> Path:
        return self._folder / unit
