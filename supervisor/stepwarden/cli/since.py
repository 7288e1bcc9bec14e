"""`--since TIME|DURATION`: an instant of the wall clock, as people say it."""

from __future__ import annotations

import argparse
import re
from datetime import datetime, timedelta

from stepwarden.clock import SystemClock

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,9})?[smhd])+")
_PART = re.compile(r"([0-9.]+)([smhd])")
_TIME_OF_DAY = re.compile(r"[0-9]{2}:[0-9]{2}(:[0-9]{2})?")

ACCEPTED = (
    "a duration before now (30s, 10m, 1h30m, 2d), a time of today (21:05),"
    " or a date and time (2026-01-02, 2026-01-02T03:04:05+01:00)"
)


def add_since_argument(parser: argparse.ArgumentParser) -> None:
    """`--since WHEN`: seconds since 1970, 0.0 where it is not given."""
    parser.add_argument(
        "--since", type=since, default=0.0, metavar="WHEN", help=f"not before: {ACCEPTED}"
    )


def since(text: str) -> float:
    """Seconds since 1970; without a zone the text is read in this host's."""
    present = SystemClock().wall()
    try:
        found = _instant(text.strip(), present)
        return max(found.timestamp(), 0.001)
    except (ValueError, OverflowError, OSError):
        raise argparse.ArgumentTypeError(f"{text!r} is no time; accepted: {ACCEPTED}") from None


def _instant(text: str, present: datetime) -> datetime:
    if _DURATION.fullmatch(text):
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
        return present - timedelta(seconds=seconds)
    if _TIME_OF_DAY.fullmatch(text):
        text = f"{present.date().isoformat()}T{text}"
    found = datetime.fromisoformat(text)
    # The zone of that day, not of today: summer time may have begun in between.
    return found if found.tzinfo is not None else found.astimezone()
