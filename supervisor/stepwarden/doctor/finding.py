"""What a check says: what was found, how bad that is, and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How bad a finding is."""

    OK = "ok"
    WARNING = "warning"  # works, and will hurt on a bad day
    PROBLEM = "problem"  # something that is configured cannot work as it should
    UNKNOWN = "unknown"  # the check could not be made


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the checklist. `advice` "": nothing has to be done. `worker` "": the host."""

    level: Level
    found: str
    advice: str = ""
    worker: str = ""


def ok(found: str, worker: str = "", advice: str = "") -> Finding:
    """As it should be; `advice` is then for another day."""
    return Finding(Level.OK, found, advice, worker)


def warning(found: str, advice: str, worker: str = "") -> Finding:
    """It works, and will hurt on a bad day."""
    return Finding(Level.WARNING, found, advice, worker)


def problem(found: str, advice: str, worker: str = "") -> Finding:
    """It cannot work so."""
    return Finding(Level.PROBLEM, found, advice, worker)


def unknown(found: str, advice: str = "", worker: str = "") -> Finding:
    """The check could not be made; `found` says why."""
    return Finding(Level.UNKNOWN, found, advice, worker)


def names(every: list[str] | tuple[str, ...], most: int = 5) -> str:
    """Some names for a sentence, and how many more there are."""
    more = f" and {len(every) - most} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more
