"""Which program a unit starts, and in plain words why systemd could not start it."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Mapping

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
"""Where systemd itself looks."""

CHDIR, EXEC = 200, 203
SETUP_STATUSES = range(200, 246)
"""With these statuses systemd's own part of a start ends.

A command that ends with one of them within a few milliseconds cannot be told from that.
"""

_SETUP = {
    201: ("set its nice level", "NICE"),
    205: ("set its limits", "LIMITS"),
    209: ("open its output", "STDOUT"),
    216: ("take its group", "GROUP"),
    217: ("take its user", "USER"),
    218: ("take its capabilities", "CAPABILITIES"),
    219: ("enter its control group", "CGROUP"),
    222: ("open its error output", "STDERR"),
}


def program_path(argv0: str, env: Mapping[str, str], cwd: str) -> str | None:
    """The absolute path of the program; None where the PATH of `env` has none of this name.

    Asks the file system where `argv0` has no slash.
    """
    if "/" in argv0:
        return os.path.join(cwd, argv0)
    found = shutil.which(argv0, path=env.get("PATH", DEFAULT_PATH))
    return None if found is None else os.path.join(cwd, found)


def not_in_path(argv0: str) -> str:
    """The sentence for a program that is nowhere in PATH."""
    return f"cannot start {argv0!r}: {_named(errno.ENOENT)}"


def why_not_started(status: int, program: str, argv0: str, cwd: str) -> str:
    """One line for a start that ended with this status. Asks the file system."""
    if status == EXEC:
        return f"cannot start {argv0!r}: {_why_not_executed(program)}"
    if status == CHDIR:
        return f"cannot enter the working directory {cwd!r}: {_why_not_entered(cwd)}"
    if status in _SETUP:
        what, name = _SETUP[status]
        return f"cannot start {argv0!r}: systemd could not {what} (status {status}/{name})"
    return f"cannot start {argv0!r}: systemd could not set it up (status {status})"


def _why_not_executed(program: str) -> str:
    try:
        mode = os.stat(program).st_mode
    except OSError as error:
        return _named(error.errno)
    if not stat.S_ISREG(mode) or not os.access(program, os.X_OK):
        return _named(errno.EACCES)
    return _why_not_loaded(program)


def _why_not_loaded(program: str) -> str:
    try:
        with open(program, "rb") as file:
            start = file.readline(256)
    except OSError:
        return _named(errno.EACCES)
    if start.startswith(b"#!"):
        interpreter = start[2:].split()[:1]
        if interpreter and not os.path.exists(interpreter[0]):
            missing = "the file is there, the interpreter that it names is not"
            return f"{_named(errno.ENOENT)}; {missing}"
    elif not start.startswith(b"\x7fELF"):
        return _named(errno.ENOEXEC)
    return "its user or the kernel may not execute it, or it ended so itself (status 203/EXEC)"


def _why_not_entered(cwd: str) -> str:
    try:
        mode = os.stat(cwd).st_mode
    except OSError as error:
        return _named(error.errno)
    return _named(errno.EACCES if stat.S_ISDIR(mode) else errno.ENOTDIR)


def _named(code: int | None) -> str:
    number = code or 0
    return f"{os.strerror(number)} ({errno.errorcode.get(number, '?')})"
