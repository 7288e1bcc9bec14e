"""What each rank was doing over the last minutes: a bounded ring for each, cheap to write.

A row is eleven numbers in an array, so a thousand ranks cost about ten megabytes and a row some
microseconds. NaN stands for what is unknown.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping

from stepwarden.core.deadline import Deadline, elapsed
from stepwarden.daemon.gather import ended_steps
from stepwarden.daemon.life import Life, RankMemory

CALM_SECONDS = 5.0
TIMELINE_SECONDS = 600.0
CALM_ROWS = int(TIMELINE_SECONDS / CALM_SECONDS)
TENSE_SECONDS = 1.0
TENSE_ROWS = 300
"""A worker under suspicion is looked at more often, in a ring beside the other."""

COLUMNS = (
    "age",
    "step",
    "step_age",
    "num_seqs",
    "num_tokens",
    "open_steps",
    "steps_begun",
    "steps_ended",
    "beat_age",
    "page_age",
    "cpu_percent",
)
"""Of a row as shown. `age`: seconds before the end of the timeline; the others as they were then.

In the ring the instant itself stands in the place of `age`.
"""

_WIDTH = len(COLUMNS)
_NONE = math.nan


class Ring:
    """The newest rows of one rank."""

    __slots__ = ("_next", "_rows", "_values")

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._values = array("d")
        self._next = 0

    def add(self, row: tuple[float, ...]) -> None:
        """One more; the oldest goes when it is full."""
        if len(self._values) < self._rows * _WIDTH:
            self._values.extend(row)
            return
        begin = self._next * _WIDTH
        self._values[begin : begin + _WIDTH] = array("d", row)
        self._next = (self._next + 1) % self._rows

    def copy(self) -> Ring:
        """Another one with the same rows."""
        other = Ring(self._rows)
        other._values, other._next = self._values[:], self._next
        return other

    def __iter__(self) -> Iterator[tuple[float, ...]]:
        count = len(self._values) // _WIDTH
        for number in range(count):
            begin = (self._next + number) % count * _WIDTH
            yield tuple(self._values[begin : begin + _WIDTH])


class Timeline:
    """The rings of one life of a worker."""

    def __init__(self, life: str) -> None:
        self.life = life
        self._calm: dict[str, Ring] = {}
        self._tense: dict[str, Ring] = {}
        self._calm_due = Deadline(0.0)
        self._tense_due = Deadline(0.0)

    def sample(self, life: Life, tense: bool, now: float) -> None:
        """Take a row of each rank, where one is due."""
        calm = self._calm_due.passed(now)
        tense = tense and self._tense_due.passed(now)
        if not calm and not tense:
            return
        if calm:
            self._calm_due = Deadline.after(now, CALM_SECONDS)
        if tense:
            self._tense_due = Deadline.after(now, TENSE_SECONDS / 2)
        for name, memory in life.ranks.items():
            row = _row(memory, now)
            if calm:
                _ring(self._calm, name, CALM_ROWS).add(row)
            if tense:
                _ring(self._tense, name, TENSE_ROWS).add(row)

    def copy(self) -> Timeline:
        """As it is now, for another thread."""
        other = Timeline(self.life)
        other._calm = {name: ring.copy() for name, ring in self._calm.items()}
        other._tense = {name: ring.copy() for name, ring in self._tense.items()}
        return other

    def rows(self, now: float) -> Mapping[str, list[list[float | None]]]:
        """Of each rank, the oldest first, as COLUMNS; None for unknown."""
        return {name: self._of(name, now) for name in self._calm.keys() | self._tense.keys()}

    def _of(self, name: str, now: float) -> list[list[float | None]]:
        rings = (ring[name] for ring in (self._calm, self._tense) if name in ring)
        rows = sorted({row[0]: row for ring in rings for row in ring}.values())
        return [
            [None if math.isnan(value) else round(value, 3) for value in _aged(row, now)]
            for row in rows
        ]


def _aged(row: tuple[float, ...], now: float) -> tuple[float, ...]:
    return (elapsed(row[0], now), *row[1:])


def _ring(rings: dict[str, Ring], name: str, rows: int) -> Ring:
    ring = rings.get(name)
    if ring is None:
        ring = rings[name] = Ring(rows)
    return ring


def _row(memory: RankMemory, now: float) -> tuple[float, ...]:
    source = memory.page if memory.page is not None else memory.beats
    steps = source.steps if source is not None else ()
    step = steps[0] if steps else None
    beats = memory.beats
    return (
        now,
        _NONE if step is None else step.number,
        _NONE if step is None else elapsed(step.begin, now),
        _number(step.num_seqs if step is not None else None),
        _number(step.num_tokens if step is not None else None),
        len(steps),
        _NONE if source is None else source.steps_begun,
        _ended(memory),
        _NONE if beats is None else elapsed(beats.beat_at, now),
        _NONE if memory.moved_at is None else elapsed(memory.moved_at, now),
        _number(memory.cpu_percent),
    )


def _ended(memory: RankMemory) -> float:
    if memory.page is not None:
        return ended_steps(memory.page)
    return _NONE if memory.beats is None else memory.beats.steps_ended


def _number(value: float | None) -> float:
    return _NONE if value is None else value
