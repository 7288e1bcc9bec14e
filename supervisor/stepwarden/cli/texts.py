"""Numbers and texts as people read them in a terminal, and messages as JSON."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from typing import Any


def duration(seconds: float | None) -> str:
    """``12.3s``, ``4m05s``, ``3h07m``, ``2d04h``; "-" for None."""
    if seconds is None:
        return "-"
    if seconds < 99.95:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02}s"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}h{minutes:02}m"
    return f"{hours // 24}d{hours % 24:02}h"


def plain(text: str) -> str:
    """Without control characters: what a worker says must not steer the terminal."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def cells(text: str) -> int:
    """How many columns of a terminal a text takes: wide characters two, combining ones none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) != 0 for c in text)


def padded(text: str, width: int) -> str:
    """`text`, and blanks up to `width` columns."""
    return text + " " * max(0, width - cells(text))


def table(header: Sequence[str], rows: Sequence[Sequence[str]], width: int = 80) -> list[str]:
    """Lines of an aligned table; a first cell that does not fit stands on a line of its own."""
    everything = (header, *rows)
    others = [max(cells(row[column]) for row in everything) for column in range(1, len(header))]
    left = max(len(header[0]), width - sum(others) - 2 * len(others))
    fitting = [cells(row[0]) for row in rows if cells(row[0]) <= left]
    first = max([len(header[0]), *fitting])
    lines = []
    for row in (header, *rows):
        name = row[0]
        if cells(name) > first:
            lines.append(name)
            name = ""
        rest = [padded(cell, size) for cell, size in zip(row[1:], others, strict=True)]
        lines.append("  ".join([padded(name, first), *rest]).rstrip())
    return lines


def as_json(value: Any, indent: int | None = 2) -> str:
    """One JSON document; with None for `indent`, one line."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def message_dict(message: Any) -> dict[str, Any]:
    """A message as plain values by its field names; None for what is absent, as is no text."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.has_presence and not message.HasField(field.name):
            value = None
        elif field.message_type is not None:
            many = hasattr(value, "append")
            value = [message_dict(one) for one in value] if many else message_dict(value)
        elif hasattr(value, "append"):
            value = list(value)
        elif value == "":
            value = None
        found[field.name] = value
    return found


def event_dict(event: Any) -> dict[str, Any]:
    """An event as plain values; `data` holds the numbers."""
    found = message_dict(event)
    found["data"] = json.loads(found.pop("data_json") or "{}")
    return found
