"""What was learned of one rank as it is shown, and its wire form there and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stepwarden_proto.v1 import supervisor_pb2 as pb

from stepwarden.core.usual import ROWS, SLOW_MAX, Row, Usual, row_of, size_of


@dataclass(frozen=True, slots=True)
class LearnedView:
    """`of`: for what it holds. `steps`: of the rank's present process, that have ended."""

    rank: str
    of: str
    usual: Usual
    steps: int = 0


def learned_message(view: LearnedView) -> pb.Learned:
    """Wire form of one table."""
    rows = [
        pb.LearnedRow(num_tokens=size_of(place), seconds=row.mean, steps=row.steps)
        for place, row in enumerate(view.usual.rows)
        if row is not None
    ]
    return pb.Learned(rank=view.rank, of=view.of, rows=rows, slow=view.usual.slow, steps=view.steps)


def view_of(message: Any) -> LearnedView:
    """Read one back; what a daemon says that makes no sense is left out."""
    rows: list[Row | None] = [None] * ROWS
    for row in message.rows:
        if row.seconds > 0.0 and row.steps > 0:
            rows[row_of(row.num_tokens)] = Row(row.seconds, row.steps)
    slow = min(max(message.slow, 1.0), SLOW_MAX)
    return LearnedView(message.rank, message.of, Usual(tuple(rows), slow), message.steps)
