"""What a step may take by what is usual, beside what the YAML says.

With `usual` and `slow` of core/usual:

    alarm        5 x usual x slow, at least 10 s
    idle death   10 x usual x slow, and not before the alarm and a whole window
    busy death   20 x usual x slow, at least 60 s

Nothing leaves the floor and the ceiling that the operator set. A young worker (its first steps in
this life, or few of this size) is given what the YAML says where that is more.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepwarden.core.usual import Usual

ALARM, IDLE, BUSY = 5.0, 10.0, 20.0
"""Times what is usual; from step traces of a real engine, see docs/judgement.md."""
BUSY_FLOOR_SECONDS = 60.0
YOUNG_STEPS = 5
YOUNG_OF_ROW = 3


@dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds from the begin of a step: to the alarm, to death if idle, to death though busy."""

    alarm: float
    idle_death: float
    busy_death: float
    arithmetic: str


@dataclass(frozen=True, slots=True)
class LearnFrame:
    """What holds whatever is learned: window, floor and ceiling in seconds.

    `cap`: the operator's own hard cap; None: there is none.
    """

    window: float = 30.0
    floor: float = 10.0
    ceiling: float = 1800.0
    cap: float | None = None


def bounds(
    usual: Usual, num_tokens: int, frame: LearnFrame, yaml: Bounds, lived: int | None = None
) -> Bounds:
    """The bounds of one step of this size; `yaml` where nothing has been learned.

    `lived`: how many steps its life had before it; None: as many as `usual` was taught.
    """
    guess = usual.guess(num_tokens)
    if guess is None:
        return yaml
    pace = guess.seconds * usual.slow
    alarm = _held(ALARM * pace, frame.floor, frame.ceiling)
    last = frame.ceiling if frame.cap is None else min(frame.ceiling, frame.cap)
    idle = max(alarm + frame.window, min(IDLE * pace, last))
    busy = max(idle, _held(BUSY * pace, BUSY_FLOOR_SECONDS, last))
    text = f"{ALARM:g} * {guess.grounds}"
    if usual.slow > 1.0:
        text += f" * {usual.slow:.3g} (slow of late)"
    text += _told(ALARM * pace, alarm)
    steps = usual.lived if lived is None else lived
    if steps < YOUNG_STEPS or guess.steps < YOUNG_OF_ROW:
        return _not_tighter(Bounds(alarm, idle, busy, text), yaml)
    return Bounds(alarm, idle, busy, text)


def _not_tighter(learned: Bounds, yaml: Bounds) -> Bounds:
    if yaml.alarm >= learned.alarm:
        text = f"young, so as configured: {yaml.arithmetic}"
    else:
        text = learned.arithmetic
    return Bounds(
        max(learned.alarm, yaml.alarm),
        max(learned.idle_death, yaml.idle_death),
        max(learned.busy_death, yaml.busy_death),
        text,
    )


def _held(seconds: float, floor: float, ceiling: float) -> float:
    return min(max(seconds, floor), ceiling)


def _told(raw: float, held: float) -> str:
    return f" = {raw:.3g} s" + ("" if held == raw else f", held at {held:g} s")
