"""Users and groups of this host, by name or number."""

from __future__ import annotations

import grp
import os
import pwd
import stat
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline, clamp_timeout
from stepwarden.edge.aside import Aside
from stepwarden.edge.launcher import SpawnFailed

LOOK_UP_SECONDS = 10.0
"""A user database that has not answered for so long fails the start that asked it."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose files are."""

    uid: int
    gid: int


def user_of(user: str | None, group: str | None = None) -> Owner:
    """The ids of a user (None: ours) and of its group; SpawnFailed where there is no such.

    A number needs no entry in the user database; its group is then ours unless one is named.
    """
    uid, gid = os.geteuid(), os.getegid()
    if user is not None:
        try:
            entry = pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
            uid, gid = entry.pw_uid, entry.pw_gid
        except KeyError:
            if not user.isdecimal():
                raise SpawnFailed(f"there is no user {user!r} on this host") from None
            uid = int(user)
    if group is not None:
        try:
            gid = int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid
        except KeyError:
            raise SpawnFailed(f"there is no group {group!r} on this host") from None
    return Owner(uid, gid)


def known_users(names: Iterable[str | None], clock: Clock) -> dict[str | None, int]:
    """The user ids of those that the host knows, and that its user database tells of in time.

    Blocks for `LOOK_UP_SECONDS` at most, however many hang: each is asked for in a thread of its
    own, which nobody waits for any longer.
    """
    found: dict[str | None, int] = {}
    deadline = Deadline.after(clock.monotonic(), LOOK_UP_SECONDS)
    asking = []
    for name in {*names}:
        if name is None:
            found[name] = os.geteuid()  # nobody has to be asked
            continue
        thread = threading.Thread(target=_note, args=(name, found), name="user", daemon=True)
        with suppress(RuntimeError):  # no thread to be had: it is not known now
            thread.start()
            asking.append(thread)
    for thread in asking:
        thread.join(clamp_timeout(deadline.remaining(clock.monotonic())))
    return dict(found)


def _note(name: str, found: dict[str | None, int]) -> None:
    with suppress(SpawnFailed, OSError):
        found[name] = user_of(name).uid


async def look_up(user: str | None, group: str | None, clock: Clock) -> Owner:
    """As `user_of`, beside the loop; SpawnFailed also where the user database does not answer."""
    if user is None and group is None:
        return user_of(None)  # nobody has to be asked
    deadline = Deadline.after(clock.monotonic(), LOOK_UP_SECONDS)
    try:
        return await Aside(clock).call(lambda: user_of(user, group), deadline)
    except OSError as error:  # TimeoutError is one
        raise SpawnFailed(f"cannot look up user {user!r}: {error}") from None


def closed_to(owner: Owner, directory: Path) -> str:
    """The first directory on the way to this one, itself included, that the user cannot pass.

    With its mode, for people. "": there is none, or it cannot be told. Access lists are not looked
    at. May block: call it in a thread.
    """
    if owner.uid == 0:
        return ""
    groups = _groups_of(owner)
    for step in reversed((directory, *directory.parents)):
        try:
            facts = step.stat()
        except OSError:
            return ""
        if not _passes(owner.uid, groups, facts):
            return f"{step} (mode {stat.S_IMODE(facts.st_mode):04o})"
    return ""


def _groups_of(owner: Owner) -> frozenset[int]:
    try:
        named = os.getgrouplist(pwd.getpwuid(owner.uid).pw_name, owner.gid)
    except KeyError:
        named = []
    return frozenset({owner.gid, *named})


def _passes(uid: int, groups: frozenset[int], facts: os.stat_result) -> bool:
    if facts.st_uid == uid:
        return bool(facts.st_mode & stat.S_IXUSR)
    if facts.st_gid in groups:
        return bool(facts.st_mode & stat.S_IXGRP)
    return bool(facts.st_mode & stat.S_IXOTH)
