"""Sums of a few metrics in a Prometheus text page, without reading the rest of it.

A page may have tens of thousands of lines, and the loop must not stand still over them: a line is
looked at closely only where it begins with a wanted name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection

MOST_LINE_BYTES = 64 * 1024
"""A longer line is left out."""

_REST = re.compile(
    rb'(?:\{(?:[^"}]|"(?:[^"\\]|\\.)*")*\}\s*)?'  # labels; values may hold braces and quotes
    rb"(?P<value>[^\s{}\"#]+)"
    rb"(?:\s+-?[0-9.]+)?"  # a time stamp
    rb"\s*(?:#.*)?"  # an exemplar
)


def sums(page: bytes, names: Collection[str]) -> dict[str, float]:
    """The sum over all label sets of each metric in `names` that the page has.

    Names are those of the lines (`x_total`, `x_count`). Values that are no finite number are left
    out, as are lines that cannot be read.
    """
    wanted = {name.encode(): name for name in names}
    beginnings = tuple(wanted)
    found: dict[str, float] = {}
    for line in page.splitlines():
        if not line.startswith(beginnings) or len(line) > MOST_LINE_BYTES:
            continue
        end = _end_of_name(line)
        name = wanted.get(line[:end])
        value = None if name is None else _value(line[end:])
        if name is not None and value is not None:
            found[name] = found.get(name, 0.0) + value
    return found


def _end_of_name(line: bytes) -> int:
    return next((at for at, letter in enumerate(line) if letter in b"{ \t"), len(line))


def _value(rest: bytes) -> float | None:
    match = _REST.fullmatch(rest.strip())
    if match is None:
        return None
    try:
        value = float(match["value"])
    except ValueError:
        return None
    return value if math.isfinite(value) else None
