"""Waiting for a condition, with a limit that only a broken program reaches."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_for(condition: Callable[[], object], limit: float = 20.0) -> None:
    """Look until `condition()` is true; AssertionError after `limit` seconds."""
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, f"not true within {limit} s"
        time.sleep(0.01)
