"""The rules that are compared: when each of them raises an alarm, and when it kills.

A rule sees each step begin and end, as it would in service. For the step that runs now it gives
three times from its begin: to the alarm, to the death of a process that does not compute, and to
the death of one that does. Rules that know no difference give the same time three times.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from typing import Protocol

from judge_traces import Step
from stepwarden.core.budget import SHIPPED, hard_cap
from stepwarden.core.learned import Bounds, LearnFrame, bounds
from stepwarden.core.usual import Usual

WINDOW = 30.0
MAXIMUM = 1800.0


class Rule(Protocol):
    """One way to judge."""

    name: str
    sees_steps: bool
    """False: it hears beats only, and misses a worker that beats and does not step."""

    def begin(self, step: Step, /) -> Bounds:
        """What holds for this step, whose length it does not know yet."""

    def ended(self, step: Step, /) -> None:
        """That step has ended by itself."""


class Fixed:
    """One constant for every step, as the engines' own watchdogs have."""

    sees_steps = True

    def __init__(self, seconds: float) -> None:
        self.name = f"fixed {seconds:g} s"
        self._bounds = _same(seconds)

    def begin(self, _step: Step) -> Bounds:
        return self._bounds

    def ended(self, _step: Step) -> None:
        pass


class Heartbeat(Fixed):
    """Beats of a thread, as a service manager's watchdog wants: says nothing of steps."""

    sees_steps = False

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.name = f"heartbeat only, {seconds:g} s"


class FactorOfMax:
    """Some factor times the longest step seen; a constant until enough have been (NVRx)."""

    sees_steps = True

    def __init__(self, factor: float = 5.0, first: float = 120.0, after: int = 10) -> None:
        self.name = f"{factor:g} x max"
        self._factor, self._first, self._after = factor, first, after
        self._longest, self._seen = 0.0, 0

    def begin(self, _step: Step) -> Bounds:
        return _same(self._first if self._seen < self._after else self._factor * self._longest)

    def ended(self, step: Step) -> None:
        self._seen += 1
        self._longest = max(self._longest, step.seconds)


class PhiAccrual:
    """How unlikely so long a step is, were lengths of steps normal (Hayashibara et al.)."""

    sees_steps = True

    def __init__(self, phi: float = 8.0, memory: int = 1000, least_spread: float = 0.1) -> None:
        self.name = f"phi accrual, phi {phi:g}"
        self._score = statistics.NormalDist().inv_cdf(1.0 - 10.0**-phi)
        self._lengths: deque[float] = deque(maxlen=memory)
        self._least, self._sum, self._squares = least_spread, 0.0, 0.0

    def begin(self, _step: Step) -> Bounds:
        if len(self._lengths) < 10:
            return _same(60.0)
        mean = self._sum / len(self._lengths)
        spread = math.sqrt(max(0.0, self._squares / len(self._lengths) - mean * mean))
        return _same(mean + self._score * max(spread, self._least))

    def ended(self, step: Step) -> None:
        if len(self._lengths) == self._lengths.maxlen:
            self._count(self._lengths[0], -1.0)
        self._lengths.append(step.seconds)
        self._count(step.seconds, 1.0)

    def _count(self, seconds: float, sign: float) -> None:
        self._sum += sign * seconds
        self._squares += sign * seconds * seconds


class Shipped:
    """The budget by formula that stepwarden ships for a CPU."""

    name = "shipped formula"
    sees_steps = True

    def begin(self, step: Step) -> Bounds:
        return configured(step)

    def ended(self, _step: Step) -> None:
        pass


class Learned:
    """Five times what is usual for this size."""

    name = "learn: on"
    sees_steps = True

    def __init__(self) -> None:
        self._usual = Usual()

    def begin(self, step: Step) -> Bounds:
        frame = LearnFrame(window=WINDOW, ceiling=MAXIMUM)
        return bounds(self._usual, step.num_tokens, frame, configured(step))

    def ended(self, step: Step) -> None:
        self._usual = self._usual.learn(step.num_tokens, step.seconds)


def configured(step: Step) -> Bounds:
    """What the shipped formula for a CPU gives this step."""
    budget = SHIPPED["cpu"].budget(step.num_seqs, step.num_tokens)
    cap = hard_cap(budget.seconds, WINDOW, 4.0, MAXIMUM, None)
    return Bounds(budget.seconds, budget.seconds + WINDOW, cap, budget.arithmetic)


def all_rules() -> list[Rule]:
    """Each anew: they remember what they have seen."""
    rules: list[Rule] = [Fixed(300.0), Fixed(60.0), Heartbeat(30.0), FactorOfMax(), PhiAccrual()]
    return [*rules, Shipped(), Learned()]


def _same(seconds: float) -> Bounds:
    return Bounds(seconds, seconds, seconds, f"{seconds:g} s")
