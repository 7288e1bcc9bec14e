"""The line with which a laid down file begins: which version laid it down how, and its own sum.

A file whose text has the sum of its stamp was not edited since and may be replaced; any other one
may be somebody's work and is left alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256

from stepwarden import __version__

_LINE = re.compile(
    r"(?:#|//) stepwarden (?P<version>\S+) install --mode (?P<mode>[a-z]+) --user (?P<user>\S+),"
    r" sum (?P<sum>[0-9a-f]{16})\n"
)


@dataclass(frozen=True, slots=True)
class Stamp:
    """What a file says of itself. `intact`: nobody has edited it since."""

    version: str
    mode: str
    user: str
    intact: bool


def stamped(text: str, comment: str, mode: str, user: str) -> str:
    """The text with its stamp; `comment`: what begins a comment there."""
    how = f"install --mode {mode} --user {user}"
    return f"{comment} stepwarden {__version__} {how}, sum {_sum(text)}\n{text}"


def read_stamp(text: str) -> Stamp | None:
    """The stamp of a file; None where it has none: something else laid it down."""
    match = _LINE.match(text)
    if match is None:
        return None
    intact = _sum(text[match.end() :]) == match["sum"]
    return Stamp(match["version"], match["mode"], match["user"], intact)


def body(text: str) -> str:
    """A text without its stamp."""
    match = _LINE.match(text)
    return text if match is None else text[match.end() :]


def _sum(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]
