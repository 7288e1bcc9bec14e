"""On PYTHONPATH: wall time in this interpreter is off by what the file STORY_WALL_OFFSET says."""

from __future__ import annotations

import datetime
import os
import time
from pathlib import Path

_file = os.environ.get("STORY_WALL_OFFSET")
_time, _time_ns, _real = time.time, time.time_ns, datetime.datetime


def _offset() -> int:
    return int(Path(_file).read_text()) if _file else 0


class _Lying(datetime.datetime):
    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:  # type: ignore[override]
        return _real.now(tz) + datetime.timedelta(seconds=_offset())


if _file:
    time.time = lambda: _time() + _offset()
    time.time_ns = lambda: _time_ns() + _offset() * 10**9
    datetime.datetime = _Lying  # type: ignore[misc]
