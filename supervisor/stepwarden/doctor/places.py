"""Where pages, sockets and state lie: kinds of file systems, room, owners, modes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stepwarden_proto.page import PAGE_BYTES

from stepwarden.doctor.check import Check
from stepwarden.doctor.finding import Finding, ok, problem, warning
from stepwarden.doctor.subject import Subject
from stepwarden.edge.page_home import SHARED_MEMORY, filesystem_of
from stepwarden.naming import counted

THEME = "directories"
MEMORY = frozenset({"tmpfs", "ramfs"})
NETWORK = frozenset({"nfs", "nfs4", "cifs", "smb3", "9p", "ceph", "lustre", "glusterfs", "afs"})
RANKS = 16
"""So many pages are reckoned per worker; more ranks than this share a host with few workers."""
MIB = 1 << 20
LITTLE_STATE, LEAST_STATE = 256 * MIB, 4 * MIB


@dataclass(frozen=True, slots=True)
class Place:
    """A directory, or where it would be made. `kind`: of its file system, "" where not known.

    `owner` None: it is not there yet. `free`: bytes for us.
    """

    path: Path
    kind: str
    free: int
    read_only: bool
    owner: int | None = None
    mode: int = 0
    is_directory: bool = True


@dataclass(frozen=True, slots=True)
class Places:
    """Runtime and state directory, and the shared memory that pages may go to."""

    runtime: Place
    state: Place
    shared: Place
    workers: int
    uid: int


def look(path: Path) -> Place:
    """The facts of a directory. Raises OSError."""
    there = next(step for step in (path, *path.parents) if step.exists())
    room = os.statvfs(there)
    free, read_only = room.f_bavail * room.f_frsize, bool(room.f_flag & os.ST_RDONLY)
    if there != path:
        return Place(path, filesystem_of(path), free, read_only)
    about = path.stat()
    mode = stat.S_IMODE(about.st_mode)
    is_directory = stat.S_ISDIR(about.st_mode)
    return Place(path, filesystem_of(path), free, read_only, about.st_uid, mode, is_directory)


def gather(subject: Subject) -> Places:
    """Facts of all three. Raises OSError."""
    settings = subject.settings
    return Places(
        look(settings.runtime_dir),
        look(settings.state_dir),
        look(SHARED_MEMORY),
        len(subject.workers),
        subject.daemon.uid,
    )


def judge_pages(facts: Places) -> Iterator[Finding]:
    """Progress pages must be in memory, and fit."""
    home = next((p for p in (facts.runtime, facts.shared) if p.kind in MEMORY), None)
    if home is None:
        yield warning(
            f"neither {facts.runtime.path} ({facts.runtime.kind or 'unknown'}) nor"
            f" {facts.shared.path} is in memory: progress pages would lie on a disk, and a slow or"
            " full one slows down engines",
            "put supervisor.runtime_dir on a tmpfs (in a pod: emptyDir with medium: Memory)",
        )
        home = facts.runtime
    need = max(1, facts.workers) * RANKS * PAGE_BYTES
    if home.free < need:
        yield problem(
            f"{home.path} has {home.free // 1024} KiB left, and progress pages of"
            f" {counted(facts.workers, 'worker')} may need {need // 1024} KiB",
            f"make room, or a larger tmpfs: mount -o remount,size=64M {home.path}",
        )
    elif home.kind in MEMORY:
        yield ok(f"progress pages go to {home.path}, {home.kind}, {_size(home.free)} free")


def judge_runtime(facts: Places) -> Iterator[Finding]:
    """Nobody else may replace our sockets."""
    place = facts.runtime
    if place.owner is None:
        yield ok(f"{place.path} is not there yet; the daemon makes it, 0755")
        return
    yield from _common("supervisor.runtime_dir", place)
    shared = place.mode & (stat.S_IWGRP | stat.S_IWOTH) and not place.mode & stat.S_ISVTX
    if place.owner not in (0, facts.uid) or shared:
        yield problem(
            f"{_told(place)} lets others replace our sockets",
            f"chown {facts.uid} {place.path}; chmod 0755 {place.path}",
        )
    else:
        yield ok(_told(place))


def judge_state(facts: Places) -> Iterator[Finding]:
    """What outlives a reboot needs a local disk with room."""
    place = facts.state
    yield from _common("supervisor.state_dir", place)
    if place.kind in NETWORK or place.kind.startswith("fuse."):
        yield warning(
            f"{place.path} is on {place.kind}: SQLite's locks and its shared memory need a local"
            " file system",
            "put supervisor.state_dir on a local disk",
        )
    if place.kind in MEMORY:
        advice = "put supervisor.state_dir on a disk, or take it as it is (in a pod)"
        found = f"{place.path} is in memory: history, and an operator's stop, end with the host"
        yield warning(found, advice)
    if place.free < LEAST_STATE:
        found = f"{place.path} is full: history and an operator's stop are not kept"
        yield problem(found, f"make room: df -h {place.path}")
    elif place.free < LITTLE_STATE:
        yield warning(f"{place.path} has {_size(place.free)} left", f"df -h {place.path}")
    if place.owner is None:
        yield ok(f"{place.path} is not there yet; the daemon makes it, 0700")
        return
    if place.owner not in (0, facts.uid):
        advice = f"chown -R {facts.uid} {place.path}"
        yield problem(f"{_told(place)} is not the daemon's (uid {facts.uid})", advice)
    elif place.mode & 0o077:
        found = f"{_told(place)} lets others read history, or write to it"
        yield warning(found, f"chmod 0700 {place.path}")
    else:
        yield ok(f"{_told(place)}, {place.kind or 'unknown file system'}, {_size(place.free)} free")


def _common(key: str, place: Place) -> Iterator[Finding]:
    if not place.is_directory:
        yield problem(f"{place.path} is in the way: no directory", f"remove it, or change {key}")
    if place.read_only:
        advice = f"mount it writable, or change {key} (under systemd: ReadWritePaths=)"
        yield problem(f"{place.path} is mounted read-only", advice)


def _told(place: Place) -> str:
    return f"{place.path} (owner {place.owner}, mode {place.mode:04o})"


def _size(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count // MIB} MiB"


CHECKS = (
    Check(THEME, "progress pages", gather, judge_pages),
    Check(THEME, "runtime directory", gather, judge_runtime),
    Check(THEME, "state directory", gather, judge_state),
)
