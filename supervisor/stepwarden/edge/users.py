"""Users and groups of this host, by name or number."""

from __future__ import annotations

import grp
import os
import pwd
from dataclasses import dataclass

from stepwarden.edge.launcher import SpawnFailed


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
