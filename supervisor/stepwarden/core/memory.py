"""What of a worker outlives the daemon, as plain data.

Instants stay as they are, in monotonic seconds: they hold for one boot of the host, and whoever
reads them back knows whether it is still the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from stepwarden.core.lifecycle import State
from stepwarden.core.restarts import Ledger
from stepwarden.core.worker import WorkerState


@dataclass(frozen=True, slots=True)
class Kept:
    """What an earlier daemon knew of a worker when it wrote this down."""

    lifecycle: State
    incarnation: int = 0
    wish: str = ""
    ready_at: float | None = None
    deaths: int = 0
    false_alarms: int = 0
    ledger: Ledger = field(default_factory=Ledger)
    restart_at: float | None = None
    restart_wanted: bool = False
    stop_wanted: bool = False
    clean_exit: bool = False
    give_up: str = ""
    cause: str = ""
    sentence: str = ""
    last_exit: str = ""
    last_death: str = ""


def keep(state: WorkerState) -> dict[str, object]:
    """The lasting part of a state: words, numbers, lists and None, as JSON can hold them."""
    return {
        "lifecycle": state.lifecycle.value,
        "incarnation": state.incarnation,
        "wish": state.wish,
        "ready_at": state.ready_at,
        "deaths": state.deaths,
        "false_alarms": state.false_alarms,
        "ledger": [list(state.ledger.deaths), state.ledger.streak],
        "restart_at": state.restart_at.at,
        "restart_wanted": state.restart_wanted,
        "stop_wanted": state.stop_wanted,
        "clean_exit": state.clean_exit,
        "give_up": state.give_up,
        "cause": str(state.cause),
        "sentence": state.sentence,
        "last_exit": state.last_exit,
        "last_death": state.last_death,
    }


def recall(told: Any) -> Kept | None:
    """Read back what `keep` gave; None for one that no version of this program wrote.

    Unknown keys are those of a newer version and are left out; what is missing takes its default.
    A state that only a newer version knows counts as STARTING: what is found on the host decides.
    """
    try:
        wish = _word(told, "wish")
        return Kept(
            lifecycle=_lifecycle(told["lifecycle"]),
            incarnation=_count(told, "incarnation"),
            wish=wish if wish in {"up", "down"} else "",
            ready_at=_instant(told, "ready_at"),
            deaths=_count(told, "deaths"),
            false_alarms=_count(told, "false_alarms"),
            ledger=_ledger(told),
            restart_at=_instant(told, "restart_at"),
            restart_wanted=told.get("restart_wanted") is True,
            stop_wanted=told.get("stop_wanted") is True,
            clean_exit=told.get("clean_exit") is True,
            give_up=_word(told, "give_up"),
            cause=_word(told, "cause"),
            sentence=_word(told, "sentence"),
            last_exit=_word(told, "last_exit"),
            last_death=_word(told, "last_death"),
        )
    except (ArithmeticError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _lifecycle(word: object) -> State:
    if not isinstance(word, str):
        raise TypeError("lifecycle")
    return State(word) if word in State.__members__ else State.STARTING


def _ledger(told: dict[str, Any]) -> Ledger:
    deaths, streak = told.get("ledger", [[], 0])
    if not isinstance(deaths, list) or not all(map(_is_instant, deaths)):
        raise ValueError("ledger")
    return Ledger(tuple(float(at) for at in deaths), max(0, int(streak)))


def _is_instant(value: object) -> TypeGuard[int | float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value)


def _count(told: dict[str, object], key: str) -> int:
    value = told.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(key)
    return max(0, value)


def _instant(told: dict[str, object], key: str) -> float | None:
    value = told.get(key)
    return float(value) if _is_instant(value) else None


def _word(told: dict[str, object], key: str) -> str:
    value = told.get(key, "")
    return value if isinstance(value, str) else ""
