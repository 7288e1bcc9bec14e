"""From what is usual to budgets: a formula, or rows, that cover every size that was seen.

A budget is some factor times the usual time. Steps of one row of what was learned hold from half
as many tokens (and one more) up to its size, and the smallest of them has to be covered too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from stepwarden.core.budget import Formula, Rows
from stepwarden.core.usual import ROWS, Row, Usual, size_of

DIGITS = 3


@dataclass(frozen=True, slots=True)
class SeenSize:
    """Steps of one size: from `least` to `most` tokens, what one takes, how many were seen."""

    least: int
    most: int
    seconds: float
    steps: int


def seen_in(tables: Iterable[Usual]) -> tuple[SeenSize, ...]:
    """What several ranks (or CPU sets) saw, from small to large: the slowest of each size."""
    found: list[SeenSize] = []
    known = list(tables)
    for place in range(ROWS):
        rows = [row for usual in known if (row := usual.rows[place]) is not None]
        if rows:
            slowest = max(rows, key=_mean)
            least = size_of(place) // 2 + 1 if place else 1
            steps = sum(row.steps for row in rows)
            found.append(SeenSize(least, size_of(place), slowest.mean, steps))
    return tuple(found)


def formula(seen: Sequence[SeenSize], factor: float, floor: float, maximum: float) -> Formula:
    """The line that lies least above `factor` times what was seen, and nowhere below it.

    `floor`: the least budget. `seen` holds one size at least.
    """
    points = [(float(one.least), factor * one.seconds) for one in seen]
    lines = [(max(y for _, y in points), 0.0)]
    for (x, y), (u, v) in combinations(points, 2):
        slope = _up(max(0.0, (v - y) / (u - x)))
        lines.append((max(b - slope * a for a, b in points), slope))
    base, slope = min(
        ((max(base, floor), slope) for base, slope in lines),
        key=lambda line: sum(line[0] + line[1] * x - y for x, y in points),
    )
    return Formula(_up(base), 0.0, slope, maximum)


def rows(
    seen: Sequence[SeenSize], factor: float, floor: float, maximum: float, largest_batch: int
) -> Rows:
    """Rows by sequences, as steps that decode have a token each; `per_token` covers prompts.

    A row that rises less than the one before it is left as high as that.
    """
    height, found = floor, dict[int, float]()
    for one in seen:
        if one.least <= largest_batch:
            height = max(height, factor * one.seconds)
            found[min(one.most, largest_batch)] = _up(height)
    first = min(found.values(), default=_up(floor))
    slopes = [(factor * one.seconds - first) / one.least for one in seen]
    table = tuple(sorted(found.items())) or ((largest_batch, first),)
    return Rows(table, None, _up(max(0.0, *slopes)), maximum)


def _up(value: float) -> float:
    """Rounded to a few digits, never down."""
    if value <= 0.0:
        return 0.0
    rounded = float(f"{value:.{DIGITS}g}")
    if rounded >= value:
        return rounded
    digit = 10.0 ** (int(f"{value:e}".split("e")[1]) - DIGITS + 1)
    return float(f"{rounded + digit:.{DIGITS}g}")


def _mean(row: Row) -> float:
    return row.mean
