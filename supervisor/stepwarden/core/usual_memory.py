"""What is usual, as plain data that outlives the daemon."""

from __future__ import annotations

import math
from typing import Any

from stepwarden.core.usual import ROWS, SLOW_MAX, Row, Usual

DIGITS = 4
MOST_STEPS = 2**53


def keep_usual(usual: Usual) -> dict[str, object]:
    """The rows and how slow it is of late; what else it knows belongs to one life."""
    rows = [
        [place, _rounded(row.mean), row.steps]
        for place, row in enumerate(usual.rows)
        if row is not None
    ]
    return {"rows": rows, "slow": _rounded(usual.slow)}


def recall_usual(told: Any) -> Usual | None:
    """Read back what `keep_usual` gave; None for anything else. Unknown keys are left out."""
    try:
        rows: list[Row | None] = [None] * ROWS
        for place, mean, steps in told["rows"]:
            rows[_whole(place, ROWS - 1)] = Row(_positive(mean), _whole(steps, MOST_STEPS))
        slow = min(max(_positive(told.get("slow", 1.0)), 1.0), SLOW_MAX)
    except (ArithmeticError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return Usual(tuple(rows), slow)


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _whole(value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError("not a count")
    return value


def _positive(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("not a number")
    if not (math.isfinite(value) and value > 0.0):
        raise ValueError("not a time")
    return float(value)
