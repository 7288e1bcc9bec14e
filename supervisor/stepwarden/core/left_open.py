"""Steps that stay open while later ones of their rank end: probably an end was never reported.

The oldest open step has the deadline, also when its handle was lost (an exception between begin
and end). Then a worker that makes progress is judged by a step that is long over. That rule stays,
since a rank that overlaps steps may truly hang in the older one; but the operator is told before.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from stepwarden.core import sentences
from stepwarden.core.clocks import RunningClock
from stepwarden.core.event import Kind
from stepwarden.core.worker import Outcome

TOLD_AT_SHARE = 0.5
"""It is told when this part of the budget is used up: steps that overlap end long before."""


def warn_left_open(outcome: Outcome, clocks: Iterable[RunningClock], now: float) -> None:
    """Tell once of each step that is overtaken by later ones and has used up half its budget."""
    for clock in clocks:
        left = clock.deadline.remaining(now)
        if clock.step is None or not clock.later_ended or left is None:
            continue
        if left > TOLD_AT_SHARE * clock.budget:
            continue
        of_rank = f"left open {clock.subject} "
        key = f"{of_rank}{clock.step.number}"
        if key in outcome.state.warned:
            continue
        # One of each rank is remembered: only the oldest open step has a clock.
        others = {word for word in outcome.state.warned if not word.startswith(of_rank)}
        outcome.state = replace(outcome.state, warned=frozenset(others | {key}))
        outcome.note(
            Kind.LEFT_OPEN,
            sentences.left_open(clock, left, now),
            rank=clock.subject,
            step=clock.step.number,
            later_ended=clock.later_ended,
            budget=clock.budget,
        )
