"""Waiting for a condition, with a limit that only a broken program reaches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(
    condition: Callable[[], T | None],
    limit: float = 60.0,
    what: str | Callable[[], str] = "the condition",
    every: float = 0.01,
) -> T:
    """Look each `every` seconds until `condition()` is true; returns what it gave then.

    AssertionError after `limit` seconds; it names `what`, which may be worked out only then.
    """
    end = time.monotonic() + limit
    while not (found := condition()):
        if time.monotonic() >= end:
            text = what if isinstance(what, str) else what()
            raise AssertionError(f"not within {limit:g} s: {text}")
        time.sleep(every)
    return found
