"""Makes the file of the progress page and maps it.

The file is opened once and stays open: a POSIX lock is lost as soon as the process closes any
descriptor of the file. The lock is how the supervisor learns from the kernel who writes here.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import time
from dataclasses import dataclass

from stepwarden_proto import page
from stepwarden_proto.phases import PHASE_CODES

from stepwarden_agent import facts


@dataclass(slots=True)
class Page:
    """The words of a page. `name` is "" where they lie in plain memory that nobody else sees."""

    words: memoryview
    name: str
    # Kept so that neither the mapping's own descriptor nor ours is closed: see the lock above.
    mapping: mmap.mmap | None = None
    descriptor: int = -1


_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_made: set[str] = set()  # paths made by this very program, not by one that gave way to it by exec


def create_page(directory: str, rank: str, phase: str) -> Page:
    """Make the page of `rank` in `directory`. Raises OSError where that cannot be."""
    name, descriptor = new_file(directory, rank)
    try:
        mapping = mmap.mmap(descriptor, page.PAGE_BYTES)
    except (OSError, ValueError) as error:
        os.close(descriptor)
        os.unlink(os.path.join(directory, name))
        raise OSError(str(error)) from error
    words = memoryview(mapping).cast("q")
    fill_header(words, phase)
    return Page(words, name, mapping, descriptor)


def new_file(directory: str, rank: str) -> tuple[str, int]:
    """An empty page of `rank` in `directory`, locked: its name and descriptor. Raises OSError."""
    name = page.page_name(rank, os.getpid())
    path = os.path.join(directory, name)
    if path not in _made:
        _clear_away(path)
    descriptor = os.open(path, _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
    _made.add(path)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Reserved now: a store into a hole on a full tmpfs would kill the engine by SIGBUS.
        os.posix_fallocate(descriptor, 0, page.PAGE_BYTES)
    except OSError:
        os.close(descriptor)
        os.unlink(path)
        raise
    return name, descriptor


def _clear_away(path: str) -> None:
    """Unlink a page that bears our pid and that nobody writes: this process had it before an exec,
    or it is left over from another that had the pid. What it shows would be taken for ours.
    """
    try:
        descriptor = os.open(path, _FLAGS)
    except OSError:
        return
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.unlink(path)
    except OSError:
        return
    finally:
        os.close(descriptor)


def private_page(phase: str) -> Page:
    """A page in plain memory, for a process whose page file cannot be made."""
    words = memoryview(bytearray(page.PAGE_BYTES)).cast("q")
    fill_header(words, phase)
    return Page(words, "")


def nameless_page(phase: str) -> Page:
    """A page in memory that nobody else sees yet; it can move into a file later.

    Where the system has no such memory the page stays private for good.
    """
    try:
        descriptor = os.memfd_create("stepwarden-page", os.MFD_CLOEXEC)
    except OSError:
        return private_page(phase)
    try:
        os.posix_fallocate(descriptor, 0, page.PAGE_BYTES)
        mapping = mmap.mmap(descriptor, page.PAGE_BYTES)
    except (OSError, ValueError):
        os.close(descriptor)
        return private_page(phase)
    words = memoryview(mapping).cast("q")
    fill_header(words, phase)
    return Page(words, "", mapping, descriptor)


def fill_header(words: memoryview, phase: str) -> None:
    """Write who we are; MAGIC comes last, so that a reader sees all or nothing."""
    high, low = facts.boot_id_words(facts.boot_id())
    words[page.W_VERSION] = page.LAYOUT_VERSION
    words[page.W_SLOTS] = page.RING_SLOTS
    words[page.W_PID] = os.getpid()
    words[page.W_START_TICKS] = facts.start_ticks()
    words[page.W_BOOT_ID_HIGH] = high
    words[page.W_BOOT_ID_LOW] = low
    words[page.W_TIME_NAMESPACE] = facts.time_namespace()
    now = time.monotonic_ns()
    words[page.W_TICK_NS] = now
    words[page.W_PHASE] = PHASE_CODES.get(phase, 0)
    words[page.W_PHASE_NS] = now
    words[page.W_UNFINISHED] = -1
    words[page.W_MAGIC] = page.MAGIC
