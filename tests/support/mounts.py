"""Mount namespaces for stories, where this user may make them."""

from __future__ import annotations

import functools
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

HIDE_CGROUPS = "mount -t tmpfs -o ro,size=4k tmpfs /sys/fs/cgroup"
_UNSHARE = ("unshare", "-m", "--propagation", "private", "sh", "-c")


@functools.cache
def may_mount() -> bool:
    """Whether this user may have mounts of its own here."""
    try:
        tried = subprocess.run(
            [*_UNSHARE, HIDE_CGROUPS], stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except FileNotFoundError:
        return False
    return tried.returncode == 0


def without_cgroups(command: Sequence[str]) -> list[str]:
    """`command` where no control group can be seen; as it is where nothing may be mounted."""
    if not may_mount():
        return list(command)
    return [*_UNSHARE, f'{HIDE_CGROUPS} && exec "$@"', "sh", *command]


def keep_mounts(*lines: str) -> subprocess.Popen[bytes] | None:
    """A process in a mount namespace made so by shell lines; None: not allowed here.

    Others enter it by `entering`. Kill it in the end.
    """
    if not may_mount():
        return None
    script = " && ".join([*lines, "echo ready", "exec sleep 1000000"])
    keeper = subprocess.Popen([*_UNSHARE, script], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    assert keeper.stdout is not None
    assert keeper.stdout.readline() == b"ready\n"
    return keeper


def tiny_disk(directory: Path, megabytes: int) -> str:
    """The line that mounts a file system of this size there."""
    options = f"size={megabytes}m,mode=700"
    return f"mount -t tmpfs -o {options} tmpfs {shlex.quote(str(directory))}"


def entering(keeper: subprocess.Popen[bytes], command: Sequence[str]) -> list[str]:
    """`command` in the namespace of a keeper; its pid stays the one that is started."""
    return ["nsenter", f"--mount=/proc/{keeper.pid}/ns/mnt", "--", *command]
