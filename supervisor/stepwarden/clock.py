"""The one place where the program reads time.

Decisions use `Clock.monotonic`, handed down as ``now``; wall time is for people and is never
compared with anything. tests/test_architecture.py keeps every other module from reading a clock.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """Where `now` comes from; tests put a fake one here."""

    def monotonic(self) -> float:
        """Seconds of CLOCK_MONOTONIC, the clock that agents stamp their pages with."""

    def wall(self) -> datetime:
        """Wall time with its zone, for logs and events."""


class SystemClock:
    """The clocks of this host."""

    def monotonic(self) -> float:
        """Seconds of CLOCK_MONOTONIC."""
        return time.monotonic()

    def wall(self) -> datetime:
        """Local wall time with its zone."""
        return datetime.now(UTC).astimezone()


def suspended_seconds() -> float:
    """How long this host has slept since its boot: time that CLOCK_MONOTONIC does not count."""
    awake = time.clock_gettime(time.CLOCK_MONOTONIC)
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - awake)
