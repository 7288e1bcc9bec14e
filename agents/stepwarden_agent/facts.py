"""Facts about this very process, from /proc and the standard library alone.

Each function answers with a value that means "unknown" where the kernel does not say.
"""

from __future__ import annotations

import os
import time
from typing import Final

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def start_ticks() -> int:
    """Start time of this process in clock ticks since boot; 0: unknown."""
    try:
        with open("/proc/self/stat", "rb") as file:
            # The command name may hold blanks and brackets; the fields follow its last bracket.
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def boot_id() -> str:
    """The kernel's boot id, a UUID in text; "": unknown."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except (OSError, ValueError):
        return ""


def boot_id_words(text: str) -> tuple[int, int]:
    """The two halves of a boot id as signed 64-bit numbers; (0, 0) for an unknown one."""
    try:
        raw = bytes.fromhex(text.replace("-", ""))
    except ValueError:
        return 0, 0
    if len(raw) != 16:
        return 0, 0
    high, low = raw[:8], raw[8:]
    return int.from_bytes(high, "big", signed=True), int.from_bytes(low, "big", signed=True)


def time_namespace() -> int:
    """Inode of this process's time namespace; 0 where the kernel has none."""
    try:
        return os.stat("/proc/self/ns/time").st_ino
    except OSError:
        return 0


def cpu_seconds() -> float | None:
    """User and system CPU seconds of this process so far; None: unknown."""
    try:
        return time.process_time()
    except (OSError, RuntimeError):
        return None


def rss_bytes() -> int | None:
    """Resident memory of this process in bytes; None: unknown."""
    try:
        # Once a second for ever: without the layers of `open`, which cost more than the kernel.
        descriptor = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(os.read(descriptor, 256).split()[1]) * _PAGE_BYTES
        finally:
            os.close(descriptor)
    except (OSError, ValueError, IndexError):
        return None
