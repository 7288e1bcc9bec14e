"""Clocks in the hands of a test."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from stepwarden.clock import SystemClock


class FakeClock:
    """Stands until a test moves it.

    `now` is its monotonic time; wall time moves along, `wall_offset` seconds apart.
    """

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.wall_offset = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.now + self.wall_offset)

    def advance(self, seconds: float) -> None:
        self.now += seconds


class ShiftedClock(SystemClock):
    """The clock of this host, ahead by as much as a test says."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead
