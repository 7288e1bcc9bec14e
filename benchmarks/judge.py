"""Which rule knows a hang from a slow step: false alarms, false deaths, hangs missed, time to find.

Every rule judges every step of two traces of a real engine, at their own pace and as if the machine
were 20, 50 and 200 times slower. Then, at each tenth step, that step is made to hang in four ways:

    frozen    asleep with the step open; beats go on
    spinning  computing for ever; beats go on
    stopped   by SIGSTOP: no CPU, no beats
    locked    computing with the interpreter lock held: no beats

The numbers of `learn: on` were fixed by the design before either trace was played here, and none
was tuned since; the figures asked for are read from the second trace alone.
`run.py judge` prints it all and writes docs/judgement.md.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from judge_rules import Learned, Rule, all_rules
from judge_traces import BATCHES, HELD_OUT, Step, load
from results import Result, percentile
from stepwarden.core.learned import BUSY_FLOOR_SECONDS, Bounds
from stepwarden.core.usual import Usual

TOPIC = "judgement"
SCALES = (1, 20, 50, 200)
HANGS = {"frozen": False, "spinning": True, "stopped": False, "locked": True}
"""Kinds of hangs; True: it uses CPU."""
SILENT = frozenset({"stopped", "locked"})
"""Kinds that stop the beats too."""
WARM = 100
EACH = 10
UPDATES = 100_000
DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "judgement.md"


@dataclass
class Score:
    """What one rule made of one trace at one pace."""

    rule: str
    trace: str
    scale: int
    steps: int = 0
    false_alarms: int = 0
    false_deaths: int = 0
    hangs: int = 0
    missed: int = 0
    idle: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    alarm_ratios: list[float] = field(default_factory=list)
    death_ratios: list[float] = field(default_factory=list)
    alarms: list[float] = field(default_factory=list)
    deaths: list[float] = field(default_factory=list)

    def per_ten_thousand(self, count: int) -> float:
        return count * 10_000 / self.steps


def measure(scratch: Path) -> list[Result]:
    """Score every rule; the figures asked for are those of the hold-out."""
    del scratch
    scores = [
        _score(rule, trace, scale)
        for trace in (BATCHES, HELD_OUT)
        for scale in SCALES
        for rule in all_rules()
    ]
    DOCUMENT.write_text(_document(scores), encoding="utf-8")
    print(_tables(scores))
    asked = _asked([score for score in scores if score.rule == Learned.name])
    return [*asked, _at_most("one update of what is usual", _update_microseconds(), 5.0, " us")]


def _update_microseconds() -> float:
    usual, began = Usual(), time.perf_counter()
    for number in range(UPDATES):
        usual = usual.learn(number % 4096, 0.05)
    return (time.perf_counter() - began) / UPDATES * 1e6


def _score(rule: Rule, trace: str, scale: int) -> Score:
    score = Score(rule.name, trace, scale)
    for number, step in enumerate(load(trace, scale)):
        bounds = rule.begin(step)
        _healthy(score, rule, step, bounds)
        if number >= WARM and number % EACH == 0 and step.working:
            _hang(score, rule, step, bounds)
        rule.ended(step)
    return score


def _healthy(score: Score, rule: Rule, step: Step, bounds: Bounds) -> None:
    score.steps += 1
    if not rule.sees_steps and step.working:
        return  # beats go on through any step
    death = bounds.busy_death if step.working else bounds.idle_death
    score.false_alarms += step.seconds > bounds.alarm
    score.false_deaths += step.seconds > death


def _hang(score: Score, rule: Rule, step: Step, bounds: Bounds) -> None:
    for kind, busy in HANGS.items():
        score.hangs += 1
        if not rule.sees_steps and kind not in SILENT:
            score.missed += 1
            continue
        (score.busy if busy else score.idle).append(
            bounds.busy_death if busy else bounds.idle_death
        )
    score.alarms.append(bounds.alarm)
    score.deaths.append(bounds.idle_death)
    if _free(bounds):
        score.alarm_ratios.append(bounds.alarm / step.seconds)
        score.death_ratios.append(bounds.idle_death / step.seconds)


def _free(bounds: Bounds) -> bool:
    """Neither the floor nor the window decides."""
    return (
        bounds.alarm > 10.0
        and bounds.busy_death > BUSY_FLOOR_SECONDS
        and (bounds.idle_death > bounds.alarm + 30.0)
    )


def _asked(learned: Iterable[Score]) -> list[Result]:
    held_out = [score for score in learned if score.trace == HELD_OUT]
    real = sum(score.false_deaths for score in learned if score.scale == 1)
    alarms = [ratio for score in held_out for ratio in score.alarm_ratios]
    deaths = [ratio for score in held_out for ratio in score.death_ratios]
    own = next(score for score in held_out if score.scale == 1)
    return [
        Result(TOPIC, "false deaths on the real traces", str(real), "0", real == 0),
        _at_most("alarm / true time, median", statistics.median(alarms), 5.5, "x"),
        _at_most("idle death / true time, median", statistics.median(deaths), 11.0, "x"),
        _at_most("alarm at its own pace, p95", percentile(own.alarms, 95), 10.0, " s"),
        _at_most("idle death at its own pace, p95", percentile(own.deaths, 95), 40.0, " s"),
    ]


def _at_most(what: str, value: float, target: float, unit: str) -> Result:
    return Result(TOPIC, what, f"{value:.3g}{unit}", f"<= {target:g}{unit}", value <= target)


def _tables(scores: list[Score]) -> str:
    parts = []
    for trace in (BATCHES, HELD_OUT):
        for scale in SCALES:
            rows = [s for s in scores if s.trace == trace and s.scale == scale]
            parts.append(f"### {trace}, {scale}x\n\n" + _table(rows))
    return "\n\n".join(parts)


def _table(scores: list[Score]) -> str:
    lines = [
        "| rule | false alarms | false deaths | hangs missed | found idle: median, p95"
        " | found busy: median, p95 |",
        "|---|---|---|---|---|---|",
    ]
    for score in scores:
        alarms = score.per_ten_thousand(score.false_alarms)
        deaths = score.per_ten_thousand(score.false_deaths)
        missed = 100.0 * score.missed / score.hangs
        lines.append(
            f"| {score.rule} | {alarms:.1f} | {deaths:.1f} | {missed:.0f} % "
            f"| {_spread(score.idle)} | {_spread(score.busy)} |"
        )
    return "\n".join(lines)


def _spread(found: list[float]) -> str:
    if not found:
        return "-"
    return f"{statistics.median(found):.1f} s, {percentile(found, 95):.1f} s"


def _document(scores: list[Score]) -> str:
    return f"""# How rules judge

Written by `make bench-judge`. Each table: one trace of a real engine at one pace. False alarms and
false deaths are per 10 000 healthy steps; hangs are of four kinds (frozen, spinning, stopped,
interpreter lock held), two of which compute; times are from the begin of the hung step to its
death. A step during which the process was stopped keeps its length at every pace.

Traces and rules are described in `benchmarks/judge*.py`. Nothing of `learn: on` was tuned on these
traces. [learning.md](learning.md) says what it is; these are its rules, played alone.

{_tables(scores)}
"""
