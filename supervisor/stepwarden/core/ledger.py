"""Scores added up: precision and time to detect, and what `learn: on` would have changed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from stepwarden.core.scores import CameOut, Score, Scored


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """All scores of one kind. `detected`, `recovered`: medians in seconds; None: none is known."""

    scored: Scored
    cause: str
    rule: str
    diagnosis: str
    confirmed: int
    false: int
    undecided: int
    pending: int
    detected: float | None
    recovered: float | None

    @property
    def precision(self) -> float | None:
        """Share of the decided that were right, 0 to 1; None while nothing is decided."""
        decided = self.confirmed + self.false
        return self.confirmed / decided if decided else None


@dataclass(frozen=True, slots=True)
class LearnedChange:
    """What the learned rule would have done beside the YAML's. `sooner`: median, in seconds."""

    alarms_confirmed: int
    alarms_false: int
    deaths_confirmed: int
    deaths_false: int
    sooner: float | None


def rows(scores: Iterable[Score]) -> tuple[LedgerRow, ...]:
    """One for each scored thing, cause, rule and diagnosis, in the order of the list of things."""
    grouped: dict[tuple[Scored, str, str, str], list[Score]] = {}
    for score in scores:
        key = score.scored, score.cause, score.rule, score.diagnosis
        grouped.setdefault(key, []).append(score)
    order = list(Scored)
    return tuple(
        _row(*key, grouped[key])
        for key in sorted(grouped, key=lambda key: (order.index(key[0]), *key[1:]))
    )


def learned_change(scores: Iterable[Score]) -> LearnedChange | None:
    """None where the learned rule alone never raised an alarm."""
    found = list(scores)
    alarms = [score for score in found if score.scored is Scored.LEARNED_ALARM]
    deaths = [score for score in found if score.scored is Scored.LEARNED_DEATH]
    if not alarms and not deaths:
        return None
    right = [score for score in alarms if score.came_out is CameOut.CONFIRMED]
    return LearnedChange(
        len(right),
        _count(alarms, CameOut.FALSE),
        _count(deaths, CameOut.CONFIRMED),
        _count(deaths, CameOut.FALSE),
        _median(score.sooner for score in right),
    )


def _row(scored: Scored, cause: str, rule: str, diagnosis: str, of: list[Score]) -> LedgerRow:
    return LedgerRow(
        scored,
        cause,
        rule,
        diagnosis,
        _count(of, CameOut.CONFIRMED),
        _count(of, CameOut.FALSE),
        _count(of, CameOut.UNDECIDED),
        _count(of, CameOut.PENDING),
        _median(score.detected for score in of),
        _median(score.recovered for score in of),
    )


def _count(scores: Iterable[Score], came_out: CameOut) -> int:
    return sum(score.came_out is came_out for score in scores)


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None
