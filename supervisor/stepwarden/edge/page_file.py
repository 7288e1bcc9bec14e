"""Opens progress pages as what they are: files that another, less trusted program writes.

Nothing here maps a page: a file truncated under a mapping kills its reader.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from dataclasses import dataclass

from stepwarden_proto.page import LAYOUT_VERSION, MAGIC, PAGE_BYTES, PAGE_SUFFIX, RING_SLOTS
from stepwarden_proto.ranks import RANK_NAME
from stepwarden_proto.ring import PAGE_WORDS

OUTSIDE = 0
"""Holder of a lock that lives outside our pid namespace: somebody, but no pid of ours."""

_WORDS = struct.Struct(f"<{PAGE_WORDS}q")
_READ_BYTES = _WORDS.size
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_NAME_BYTES = 128

# struct flock of 64-bit Linux: type, whence, start, length, pid.
_FLOCK = struct.Struct("hhqqi4x")
_ASK_FOR_WRITER = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class OpenPage:
    """An open page whose kind, owner, size and header were found good."""

    name: str
    rank: str
    pid: int
    uid: int
    inode: int
    descriptor: int

    def read(self) -> bytes:
        """All meaningful bytes as they are now. Raises OSError; short where truncated."""
        return os.pread(self.descriptor, _READ_BYTES, 0)

    def holder(self) -> int | None:
        """Pid of the process that holds the write lock; OUTSIDE, or None where nobody does."""
        try:
            answer = fcntl.fcntl(self.descriptor, fcntl.F_GETLK, _ASK_FOR_WRITER)
        except OSError:
            return None
        kind, _, _, _, pid = _FLOCK.unpack(answer)
        if kind == fcntl.F_UNLCK:
            return None
        return pid if pid > 0 else OUTSIDE

    def close(self) -> None:
        """Close it."""
        os.close(self.descriptor)


def words_of(raw: bytes) -> tuple[int, ...]:
    """The words in `raw`, which must be a full read."""
    return _WORDS.unpack(raw)


def full(raw: bytes) -> bool:
    """False for a read from a file that was cut."""
    return len(raw) == _READ_BYTES


def parse_name(name: str) -> tuple[str, int] | None:
    """Rank and pid in a page's file name; None where it is no such name."""
    if not name.endswith(PAGE_SUFFIX) or len(os.fsencode(name)) > _MAX_NAME_BYTES:
        return None
    rank, _, pid = name.removesuffix(PAGE_SUFFIX).rpartition(".")
    if not RANK_NAME.fullmatch(rank) or not pid.isascii() or not pid.isdigit():
        return None
    return rank, int(pid)


def open_page(directory: int, name: str, expect_uid: int | None) -> OpenPage | None:
    """Open page `name` in an open directory; None where it is not one, or not finished yet.

    OSError where nothing could be opened at all: no descriptor is left.
    """
    parsed = parse_name(name)
    if parsed is None:
        return None
    try:
        descriptor = os.open(name, _FLAGS, dir_fd=directory)
    except OSError as error:
        if error.errno in {errno.EMFILE, errno.ENFILE}:
            raise
        return None
    page = None
    try:
        about = os.fstat(descriptor)
        if stat.S_ISREG(about.st_mode) and about.st_size == PAGE_BYTES:
            owned = expect_uid is None or about.st_uid == expect_uid
            made = OpenPage(name, *parsed, about.st_uid, about.st_ino, descriptor)
            page = made if owned and _good_header(made) else None
    except OSError:
        page = None
    if page is None:
        os.close(descriptor)
    return page


def _good_header(page: OpenPage) -> bool:
    raw = page.read()
    if not full(raw):
        return False
    magic, version, slots, pid = words_of(raw)[:4]
    return (magic, version, slots, pid) == (MAGIC, LAYOUT_VERSION, RING_SLOTS, page.pid)
