"""Moves a page that is in use into another file, under the feet of those who write it.

The engine's threads store into the page at any instant, without a lock, and go on while it moves.
So the page stays at its address, and the kernel puts another file behind that address in one step:
a store lands in the old file or in the new one. What landed in the old one after it was copied is
found by comparing it with the copy, and carried over. Nothing changes for those who write, and
their next store costs a page fault, no system call.

Reading and storing one word through a memoryview cannot be cut in two by another thread while
there is an interpreter lock, so no newer word is overwritten. MAGIC comes last: until then no
reader takes the new file for a page.
"""

from __future__ import annotations

import mmap
import os
from array import array
from contextlib import suppress

from stepwarden_proto import page

from stepwarden_agent import forking
from stepwarden_agent.page_file import Page, new_file

_MAP_FIXED = 0x10


def in_place(moved: Page, directory: str) -> bool:
    """Whether the page is the file of its name in `directory`."""
    if not moved.name:
        return False
    try:
        there, ours = os.stat(os.path.join(directory, moved.name)), os.fstat(moved.descriptor)
    except OSError:
        return False
    return (there.st_ino, there.st_dev) == (ours.st_ino, ours.st_dev)


def move_page(moved: Page, directory: str, rank: str) -> None:
    """Make a file for `moved` in `directory` and put it behind the page. Raises OSError.

    A page in plain memory cannot move.
    """
    if moved.mapping is None:
        raise OSError("this process has no memory that could be moved")
    name, descriptor = new_file(directory, rank)
    try:
        _exchange(moved, moved.mapping, descriptor)
    except BaseException:
        os.close(descriptor)
        with suppress(OSError):
            os.unlink(os.path.join(directory, name))
        raise
    old, moved.descriptor, moved.name = moved.descriptor, descriptor, name
    os.close(old)


def _exchange(moved: Page, mapping: mmap.mmap, descriptor: int) -> None:
    words = moved.words
    before = array("q", words)
    copy = before[:]
    copy[page.W_MAGIC] = 0
    os.pwrite(descriptor, copy.tobytes(), 0)
    _map_over(mapping, descriptor)
    last = array("q", os.pread(moved.descriptor, page.PAGE_BYTES, 0))
    for index in range(1, len(last)):
        if last[index] != before[index] and words[index] == before[index]:
            words[index] = last[index]
    words[page.W_MAGIC] = page.MAGIC


def _map_over(mapping: mmap.mmap, descriptor: int) -> None:
    """Put the file behind the address of the mapping, which stays good for its views."""
    with forking.lock:  # an import cut in half by a fork would hang the child
        import ctypes
    system = ctypes.CDLL(None, use_errno=True)
    place = system.mmap
    place.restype = ctypes.c_void_p
    place.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    ]
    # Tried elsewhere first: an attempt that fails might leave nothing at the address.
    tried = place(None, page.PAGE_BYTES, *_HOW, descriptor, 0)
    if tried == _FAILED:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    system.munmap(ctypes.c_void_p(tried), ctypes.c_size_t(page.PAGE_BYTES))
    address = ctypes.addressof(ctypes.c_char.from_buffer(mapping))
    protection, flags = _HOW
    if place(address, page.PAGE_BYTES, protection, flags | _MAP_FIXED, descriptor, 0) != address:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


_HOW = (mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED)
_FAILED = 2**64 - 1  # MAP_FAILED
