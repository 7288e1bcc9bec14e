"""The sockets as they lie on the disk now, against what the file says."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from stepwarden.doctor.check import Check
from stepwarden.doctor.finding import Finding, ok, problem, unknown
from stepwarden.doctor.subject import Subject
from stepwarden.edge.listen import group_id
from stepwarden.errors import RefusedError

THEME = "sockets"


@dataclass(frozen=True, slots=True)
class Socket:
    """One socket. `mode` None: nothing is there, or (`hidden`) we may not look."""

    key: str
    path: Path
    wanted_mode: int
    wanted_group: int | None
    wanted_owner: int
    runs: bool
    hidden: bool = False
    mode: int | None = None
    is_socket: bool = True
    owner: int = 0
    group: int = 0


def gather(subject: Subject) -> list[Socket]:
    """Facts of both."""
    settings, daemon = subject.settings, subject.daemon
    try:
        group = group_id(settings.socket_group)
    except RefusedError:
        group = None  # the check of accounts tells of it
    return [
        _look(Socket(key, path, settings.socket_mode, group, daemon.uid, daemon.runs))
        for key, path in (
            ("admin_socket", settings.admin_socket),
            ("agent_socket", settings.agent_socket),
        )
    ]


def judge(facts: list[Socket]) -> Iterator[Finding]:
    """There while a daemon runs, and exactly as configured."""
    for socket in facts:
        yield from _judge_one(socket)


def _judge_one(socket: Socket) -> Iterator[Finding]:
    if socket.hidden:
        yield unknown(f"{socket.path} cannot be looked at by this user", "ask as root")
    elif socket.mode is None and socket.runs:
        advice = "the daemon makes it anew within seconds; if it does not, see its log"
        yield problem(f"{socket.path} is gone, while the daemon runs", advice)
    elif socket.mode is None:
        yield ok(f"{socket.path} is not there, as no daemon runs")
    elif not socket.is_socket:
        found = f"{socket.path} is no socket, and in the way of supervisor.{socket.key}"
        yield problem(found, "move it away")
    elif _differs(socket):
        yield problem(
            f"{socket.path} has owner {socket.owner}, group {socket.group}, mode"
            f" {socket.mode:04o}; by the file it has {_wanted(socket)}",
            "somebody changed it, or the file was changed since: restart the daemon",
        )
    else:
        yield ok(f"{socket.path}: owner {socket.owner}, mode {socket.mode:04o}, as configured")


def _differs(socket: Socket) -> bool:
    group = socket.wanted_group
    if socket.mode != socket.wanted_mode or (group is not None and socket.group != group):
        return True
    return socket.runs and socket.owner != socket.wanted_owner


def _wanted(socket: Socket) -> str:
    group = "" if socket.wanted_group is None else f", group {socket.wanted_group}"
    return f"owner {socket.wanted_owner}{group}, mode {socket.wanted_mode:04o}"


def _look(socket: Socket) -> Socket:
    try:
        about = os.lstat(socket.path)
    except (FileNotFoundError, NotADirectoryError):
        return socket
    except PermissionError:
        return replace(socket, hidden=True)
    return replace(
        socket,
        mode=stat.S_IMODE(about.st_mode),
        is_socket=stat.S_ISSOCK(about.st_mode),
        owner=about.st_uid,
        group=about.st_gid,
    )


CHECKS = (Check(THEME, "sockets", gather, judge),)
