"""The ledger's arithmetic: how each alarm and each death came out, told from the events alone.

An alarm that went away by itself was false, one that the worker died of is confirmed. A death by
verdict is confirmed where two looks at the stacks show the same place, and false where they show
it moving. What only would have been is scored alike. An alarm that an operator, a reload or more
time ended proves nothing: it is undecided, and counts for no precision. Exits are facts and no
verdicts: they confirm alarms, and are not scored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from stepwarden.core.clocks import BY_YAML, LEARNED, WORKER, Cause
from stepwarden.core.deadline import elapsed
from stepwarden.core.event import STILL_OPEN, Event, Kind
from stepwarden.core.lifecycle import State
from stepwarden.core.sparing import OBSERVE_RULE
from stepwarden.core.stacks import Place

FACTS = frozenset({Cause.EXIT, Cause.RANK_EXIT, Cause.SPAWN, Cause.GATE, Cause.PLATFORM})
"""Causes that no deadline stands behind."""


class Scored(StrEnum):
    """What is scored."""

    ALARM = "alarm"
    DEATH = "death"
    OBSERVED_DEATH = "observed_death"  # spared only by `mode: observe`
    LEARNED_ALARM = "learned_alarm"  # would be, were `learn: on`
    LEARNED_DEATH = "learned_death"


REAL, SHADOWS = (Scored.ALARM, Scored.OBSERVED_DEATH), (Scored.LEARNED_ALARM, Scored.LEARNED_DEATH)
"""What the rule in force says, and what one that only watches says: they come and go apart."""

RAISED_BY = {Kind.SUSPICION: Scored.ALARM, Kind.SHADOW_ALARM: Scored.LEARNED_ALARM}
ENDED_BY = {Kind.FALSE_ALARM: REAL, Kind.SHADOW_CLEARED: SHADOWS}


class CameOut(StrEnum):
    """How it came out."""

    CONFIRMED = "confirmed"
    FALSE = "false"
    UNDECIDED = "undecided"
    PENDING = "pending"  # nothing came of it yet


@dataclass(frozen=True, slots=True)
class Score:
    """One alarm or death. Seconds; None: not known.

    `detected`: from the begin of what was late to the verdict. `recovered`: from the verdict until
    it ended by itself. `sooner`: by how much the learned budget is below the YAML's.
    """

    worker: str
    incarnation: str
    scored: Scored
    cause: str
    rank: str
    rule: str = BY_YAML
    diagnosis: str = ""
    came_out: CameOut = CameOut.PENDING
    detected: float | None = None
    recovered: float | None = None
    sooner: float | None = None


Key = tuple[str, str, Scored, str, str, object]
"""Worker, incarnation, what, cause, rank, step number."""


class Scorebook:
    """Follows the events of any number of workers, in their order."""

    def __init__(self) -> None:
        self._open: dict[Key, Score] = {}

    def pending(self) -> tuple[Score, ...]:
        """What nothing came of yet."""
        return tuple(self._open.values())

    def take(self, event: Event) -> list[Score]:
        """What this event decides; mostly nothing."""
        if event.kind is Kind.TRANSITION:
            return self._moved(event)
        if event.kind in RAISED_BY:
            return self._raised(event, RAISED_BY[event.kind])
        if event.kind is Kind.SHADOW_DEATH and event.cause not in FACTS:
            observed = event.data.get("rule") == OBSERVE_RULE
            return self._raised(event, Scored.OBSERVED_DEATH if observed else Scored.LEARNED_DEATH)
        return self._ended(event, ENDED_BY.get(event.kind, ()))

    def _moved(self, event: Event) -> list[Score]:
        earlier = self._close(
            lambda one: one.worker == event.worker and one.incarnation != event.incarnation,
            CameOut.UNDECIDED,
        )
        if event.to_state == State.UNHEALTHY:
            raised = [] if event.cause in FACTS else self._raised(event, Scored.ALARM)
            return earlier + raised
        if event.to_state == State.DEAD:
            return earlier + self._died(event)
        # A worker that is well again, or not ready yet, may still be late by the other rule.
        ended = REAL if event.to_state in {State.HEALTHY, State.STARTING} else tuple(Scored)
        left = self._close(
            lambda one: one.worker == event.worker and one.scored in ended, CameOut.UNDECIDED
        )
        return earlier + left

    def _died(self, event: Event) -> list[Score]:
        judged = event.cause not in FACTS
        death = _score(event, Scored.DEATH, _looked(event.data.get("stacks")))
        false = judged and death.came_out is CameOut.FALSE
        came_out = CameOut.FALSE if false else CameOut.CONFIRMED
        closed = self._close(lambda one: one.worker == event.worker, came_out)
        return [*closed, death] if judged else closed

    def _raised(self, event: Event, scored: Scored) -> list[Score]:
        closed: list[Score] = []
        if scored is Scored.ALARM and event.cause == Cause.STARTUP and event.rank != WORKER:
            # No second alarm: the same late start, now known by the name of its rank.
            self._open.pop(_key(replace(event, rank=WORKER), scored), None)
        key = _key(event, scored)
        before = self._open.pop(key, None)
        if before is not None:  # another daemon raised it, and saw nothing come of it
            closed.append(_with(before, CameOut.UNDECIDED))
        score = _score(event, scored, CameOut.PENDING)
        alarm = self._open.get(_key(event, Scored.ALARM))
        if scored is Scored.OBSERVED_DEATH and alarm is not None:
            score = replace(score, rule=alarm.rule)
        self._open[key] = score
        return closed

    def _ended(self, event: Event, scored: tuple[Scored, ...]) -> list[Score]:
        came_out = CameOut.UNDECIDED if event.data.get(STILL_OPEN) else CameOut.FALSE
        lasted = _number(event.data, "seconds")
        found: list[Score] = []
        for each in scored:
            score = self._open.pop(_key(event, each), None)
            if score is not None:
                found.append(_with(score, came_out, lasted))
        return found

    def _close(self, is_meant: Callable[[Score], bool], came_out: CameOut) -> list[Score]:
        meant = [key for key, score in self._open.items() if is_meant(score)]
        return [_with(self._open.pop(key), came_out) for key in meant]


def _key(event: Event, scored: Scored) -> Key:
    step = event.data.get("step")
    return event.worker, event.incarnation, scored, str(event.cause), event.rank, step


def _score(event: Event, scored: Scored, came_out: CameOut) -> Score:
    data = event.data
    rule = str(data.get("rule") or BY_YAML)
    shadow = scored in SHADOWS
    budget, yaml_budget = _number(data, "budget"), _number(data, "yaml_budget")
    known = shadow and budget is not None and yaml_budget is not None
    return Score(
        event.worker,
        event.incarnation,
        scored,
        str(event.cause),
        event.rank,
        LEARNED if shadow else BY_YAML if rule == OBSERVE_RULE else rule,
        str(data.get("diagnosis") or ""),
        came_out,
        detected=_number(data, "seconds" if shadow else "age"),
        sooner=(yaml_budget or 0.0) - (budget or 0.0) if known else None,
    )


def _with(score: Score, came_out: CameOut, lasted: float | None = None) -> Score:
    recovered = None
    if came_out is CameOut.FALSE and lasted is not None and score.detected is not None:
        recovered = elapsed(score.detected, lasted)
    return replace(score, came_out=came_out, recovered=recovered)


def _looked(stacks: object) -> CameOut:
    """What two looks at its stacks, the last just before the verdict, say of a death."""
    if stacks == Place.WEDGED:
        return CameOut.CONFIRMED
    return CameOut.FALSE if stacks == Place.MOVING else CameOut.UNDECIDED


def _number(data: Mapping[str, float | int | str | None], name: str) -> float | None:
    value = data.get(name)
    return float(value) if isinstance(value, int | float) else None
