"""Which host this is: its boot and our time namespace, which make a clock ours."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_NO_BOOT = (0, 0)


@dataclass(frozen=True, slots=True)
class Host:
    """What makes a clock ours. `boot`: as the kernel writes it, "" where it does not say.

    `time_namespace`: the inode of our time namespace, 0 where the kernel has none. `boot_id`: the
    boot as two signed words, high and low, as pages carry it; zeros for none.
    """

    boot: str
    time_namespace: int
    boot_id: tuple[int, int]


def this_host() -> Host:
    """Boot and time namespace of this process."""
    boot = _boot()
    return Host(boot, _time_namespace(), _words_of(boot))


def _words_of(boot: str) -> tuple[int, int]:
    try:
        raw = bytes.fromhex(boot.replace("-", ""))
    except ValueError:
        return _NO_BOOT
    high, low = raw[:8], raw[8:]
    return int.from_bytes(high, "big", signed=True), int.from_bytes(low, "big", signed=True)


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _time_namespace() -> int:
    try:
        return os.stat("/proc/self/ns/time").st_ino
    except OSError:
        return 0
