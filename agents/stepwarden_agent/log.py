"""Trouble of the agent is told once and never raised: the engine has better things to do."""

from __future__ import annotations

import logging
from typing import Final

LOGGER: Final = logging.getLogger("stepwarden_agent")

_told: set[str] = set()


def once(key: str, line: str) -> None:
    """Log `line` as a warning, the first time that this process meets `key`."""
    if key in _told:
        return
    _told.add(key)
    try:
        LOGGER.warning("%s", line)
    except Exception:
        # A broken handler of the engine's own logging must not end the beat thread.
        return


def forget() -> None:
    """Let everything be told again (a forked child is a process of its own; tests)."""
    _told.clear()
