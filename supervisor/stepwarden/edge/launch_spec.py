"""What is to be started and as whom: the request that the launcher process gets."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_OF_A_USER = {
    "HOME",
    "LOGNAME",
    "MAIL",
    "SHELL",
    "USER",
    "USERNAME",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
}

LAUNCHER_MARK = "STEPWARDEN_LAUNCHER_OF"
"""Stands in the environment of launcher processes: the state directory of their supervisor."""

COMMAND_MARK = "STEPWARDEN_COMMAND_OF"
"""Stands in the environment of short commands: the state directory of their supervisor."""

COMMAND_PID = "STEPWARDEN_COMMAND_PID"
"""Stands there too: the pid of the command itself. What it starts inherits it and has another."""

LIMITS = ("nofile", "memlock", "core", "nproc", "stack", "as", "fsize")
"""The resource limits that a worker can be given."""


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """What to start: in a session of its own, without our descriptors, mask or ignored signals.

    `argv[0]` without a slash is looked up in the PATH of `env`; with one it is relative to `cwd`.
    `cwd`: entered as the user that it becomes; None: ours.
    `stdout_path`: output and errors are appended there; None: they go to ours.
    `descriptors`: how many it may hold open at first (the soft limit); None: as many as we.
    `user`, `group`: name or number; None: ours. A user brings its groups, and HOME, USER and
    LOGNAME where `env` has them not (see `without_our_user`).
    `umask`, `nice` (an absolute value): None: ours.
    `limits`: soft and hard, by the names in LIMITS, in bytes or pieces; None: unlimited.
    `cgroup`: absolute path of a cgroup v2 directory to be in from the start; None: ours.
    `output_fd`, `input_fd`: open descriptors of ours that become its output and errors, and its
    input; they stay open here, and are the caller's to close. None: see above, and /dev/null.
    `pid_variable`: this variable of its environment becomes its own pid; None: none does.
    `owned`: paths of ours that are to belong to `user` and `group` (its page directory); whose they
    are then tells the user's number without asking a directory service here.
    """

    argv: Sequence[str] = field(repr=False)
    env: Mapping[str, str] = field(repr=False)
    cwd: str | None = None
    stdout_path: str | None = None
    descriptors: int | None = None
    user: str | None = None
    group: str | None = None
    umask: int | None = None
    nice: int | None = None
    limits: Mapping[str, int | None] = field(default_factory=dict)
    cgroup: str | None = None
    output_fd: int | None = None
    input_fd: int | None = None
    owned: Sequence[str] = ()
    pid_variable: str | None = None

    def encoded(self) -> bytes:
        """The request as the launcher process reads it."""
        request = {
            "argv": [_as_latin1(word) for word in self.argv],
            "env": {_as_latin1(key): _as_latin1(value) for key, value in self.env.items()},
            "cwd": _or_none(self.cwd),
            "stdout": _or_none(self.stdout_path),
            "descriptors": self.descriptors,
            "user": self.user,
            "group": self.group,
            "umask": self.umask,
            "nice": self.nice,
            "limits": dict(self.limits),
            "cgroup": _or_none(self.cgroup),
            "pid_variable": _or_none(self.pid_variable),
            "owned": [_as_latin1(path) for path in self.owned],
            "streams": [targets for _, targets in self._streams()],
        }
        return json.dumps(request).encode("ascii")

    def passed(self) -> list[int]:
        """Our descriptors that go along with the request, in the order that it names them."""
        return [descriptor for descriptor, _ in self._streams()]

    def _streams(self) -> list[tuple[int, list[int]]]:
        pairs = [(self.input_fd, [0]), (self.output_fd, [1, 2])]
        return [(ours, theirs) for ours, theirs in pairs if ours is not None]


def without_our_user(environ: Mapping[str, str]) -> dict[str, str]:
    """Our environment without what speaks of our own user, for a worker that runs as another."""
    return {key: value for key, value in environ.items() if key not in _OF_A_USER}


def _or_none(text: str | None) -> str | None:
    return None if text is None else _as_latin1(text)


def _as_latin1(text: str) -> str:
    return os.fsencode(text).decode("latin-1")
