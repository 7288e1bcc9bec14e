"""Waiting for a condition, with a limit that only a broken program reaches."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_for(
    condition: Callable[[], object],
    limit: float = 20.0,
    what: str | Callable[[], str] = "the condition",
    every: float = 0.01,
) -> None:
    """Look each `every` seconds until `condition()` is true.

    AssertionError after `limit` seconds; it names `what`, which may be worked out only then.
    """
    end = time.monotonic() + limit
    while not condition():
        if time.monotonic() >= end:
            text = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {limit:g} s: {text}")
        time.sleep(every)
