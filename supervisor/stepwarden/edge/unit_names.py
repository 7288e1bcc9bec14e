"""Names of transient units: `stepwarden-WORKER-NUMBER.HEX.service`, readable and reversible.

Each has a slice of its own, `stepwarden-WORKER-NUMBER.HEX.slice`, inside that of its worker,
`stepwarden-WORKER.slice`, inside `stepwarden.slice`. In the name of a slice each "-" opens a level,
so one within the worker's name is escaped there.
"""

from __future__ import annotations

import re

PREFIX = "stepwarden-"
SLICE = "stepwarden.slice"
"""Around the slices of all workers."""

_SUFFIX = ".service"
_SLICE = ".slice"
_LONGEST = 255  # bytes that systemd allows in the name of a unit
_LIFE = re.compile(r"(?P<worker>.+)\.(?P<life>[0-9]+\.[0-9a-f]+)", re.DOTALL)
_UNIT = re.compile(r"(?P<worker>.+)-(?P<life>[0-9]+\.[0-9a-f]+)", re.DOTALL)
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:_.-")
_DASH = "\\x2d"
_ESCAPE = re.compile(rb"\\x([0-9a-f]{2})")


def unit_name(incarnation: str) -> str:
    """The unit of an incarnation "WORKER.NUMBER.HEX"; ValueError where that is none or too long.

    What systemd does not allow in a name is written as \\xHH, as systemd-escape does.
    """
    match = _LIFE.fullmatch(incarnation)
    if match is None:
        raise ValueError(f"{incarnation!r} is no incarnation")
    name = f"{PREFIX}{_escape(match['worker'])}-{match['life']}{_SUFFIX}"
    if len(slice_of(name)) > _LONGEST:
        raise ValueError(f"the name of unit {name!r} is longer than {_LONGEST} characters")
    return name


def slice_of(unit: str) -> str:
    """The slice that a unit of ours is alone in."""
    worker, _, life = unit[len(PREFIX) : -len(_SUFFIX)].rpartition("-")
    return f"{PREFIX}{worker.replace('-', _DASH)}-{life}{_SLICE}"


def incarnation_of(unit: str) -> tuple[str, str] | None:
    """Worker and incarnation of a unit of ours; None for every other unit."""
    if not (unit.startswith(PREFIX) and unit.endswith(_SUFFIX)):
        return None
    match = _UNIT.fullmatch(unit[len(PREFIX) : -len(_SUFFIX)])
    if match is None:
        return None
    worker = _unescape(match["worker"])
    return worker, f"{worker}.{match['life']}"


def _escape(text: str) -> str:
    raw = text.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if byte in _PLAIN else f"\\x{byte:02x}" for byte in raw)


def _unescape(text: str) -> str:
    raw = text.encode("utf-8", "surrogateescape")
    plain = _ESCAPE.sub(lambda match: bytes.fromhex(match[1].decode()), raw)
    return plain.decode("utf-8", "surrogateescape")
