"""What a reload does to whom: worked out before anything is touched, and shown by a dry run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from stepwarden.config import Config, WorkerConfig
from stepwarden.config.difference import (
    Changes,
    Difference,
    KeyChange,
    When,
    differing_marks,
    process_marks,
)
from stepwarden.core.lifecycle import ENDING, LIVE
from stepwarden.core.sentences import seconds
from stepwarden.daemon.runners import ATTACH
from stepwarden.daemon.unit import Unit
from stepwarden.edge.reload_views import Effect, ReloadChange

NOW, ASK = "now", "ask"
"""`supervisor.reload.restart`: what becomes of a worker whose process would need other things."""

SHOWN_KEYS = 6


@dataclass(frozen=True, slots=True)
class Wanted:
    """A configuration that can be used, and what its workers would be started with now.

    `marks` by worker (`config.difference.process_marks`): worked out beforehand, beside the loop.
    """

    config: Config
    differs: Difference
    marks: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done. `outdated`: of each known worker that is touched, what it lacks."""

    changes: tuple[ReloadChange, ...] = ()
    outdated: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def plan(wanted: Wanted, units: Mapping[str, Unit]) -> Plan:
    """Everything that applying it does. Nothing here changes anything."""
    lacking: dict[str, tuple[str, ...]] = {}
    return Plan(tuple(_plan(wanted, units, lacking)), lacking)


def _plan(
    wanted: Wanted, units: Mapping[str, Unit], lacking: dict[str, tuple[str, ...]]
) -> Iterator[ReloadChange]:
    differs, new = wanted.differs, wanted.config
    if differs.settings:
        text = _list(differs.settings)
        yield ReloadChange("", "supervisor", Effect.ADJUSTED, text, _keys(differs.settings))
    for name, changes in differs.groups.items():
        yield ReloadChange("", f"group {name}", Effect.ADJUSTED, _list(changes), _keys(changes))
    for name in differs.removed:
        if name in units:
            yield _worker(name, Effect.REMOVED, _of_removed(units[name]))
    for name, worker in new.workers.items():
        if name in differs.added:
            yield _worker(name, Effect.ADDED, _of_added(worker, units.get(name)))
        elif name in units:
            changes, unit = differs.changed.get(name, ()), units[name]
            # One that waits for a restart since an earlier reload may be as it was in the file.
            if changes or (unit.life is not None and unit.life.outdated):
                lacking[name] = _lacks(unit, wanted.marks[name])
                restart = new.supervisor.reload_restart
                yield from _of_known(unit, changes, lacking[name], restart)


def _lacks(unit: Unit, marks: str) -> tuple[str, ...]:
    """What the process of a worker does not have as it is wanted; () for all, or no process."""
    if unit.life is None or unit.state.lifecycle not in LIVE:
        return ()
    return differing_marks(unit.life.marks or process_marks(unit.running_config), marks)


def _of_known(
    unit: Unit, changes: Changes, keys: tuple[str, ...], restart: str
) -> Iterator[ReloadChange]:
    if not changes and not keys:
        return
    name, told = unit.config.name, _keys(changes) or keys
    if keys and restarts_at_once(unit, restart):
        text = f"restarted, for another {_and(keys)}{_besides(changes)}"
        yield _worker(name, Effect.RESTARTED, text, told)
    elif keys:
        text = f"goes on as it is; another {_and(keys)} needs a restart{_besides(changes)}"
        yield _worker(name, Effect.RESTART_NEEDED, text, told)
    else:
        yield _worker(name, Effect.ADJUSTED, _of_adjusted(unit, changes), told)


def restarts_at_once(unit: Unit, restart: str) -> bool:
    """Whether one whose process needs other things is restarted by the reload itself.

    One of which nothing runs yet begins its wait anew in any case: that costs nothing.
    """
    return restart == NOW or unit.life is None or not unit.life.launching


def _of_added(worker: WorkerConfig, leaving: Unit | None) -> str:
    if leaving is not None and leaving.state.lifecycle in ENDING:
        return "added again; it starts when its former processes are gone"
    if not worker.policy.autostart:
        return "added; it waits for an operator (autostart: false)"
    return "added and started"


def _of_removed(unit: Unit) -> str:
    if unit.life is not None and unit.life.runner == ATTACH:
        return "removed; its processes are somebody else's and left alone"
    if unit.state.lifecycle not in LIVE:
        return "removed"
    grace = seconds(unit.running_config.stop_grace)
    return f"stopped with a grace of {grace}, then removed"


def _of_adjusted(unit: Unit, changes: Changes) -> str:
    later = [change for change in changes if change.effect is not When.NOW]
    text = _list(changes)
    if unit.state.lifecycle not in LIVE:
        return text
    if any(change.effect is When.RESTART for change in changes):
        return f"{text}; its process has it so already"
    if later and len(later) == len(changes):
        return f"{text}; from its next start on"
    if later:
        return f"{text}; {_and(_keys(later))} from its next start on"
    return text


def _besides(changes: Changes) -> str:
    others = [change for change in changes if change.effect is When.NOW]
    return f"; at once: {_list(others)}" if others else ""


def _worker(name: str, effect: Effect, sentence: str, keys: tuple[str, ...] = ()) -> ReloadChange:
    return ReloadChange(name, f"worker {name}", effect, sentence, keys)


def _keys(changes: Iterable[KeyChange]) -> tuple[str, ...]:
    return tuple(change.key for change in changes)


def _list(changes: Iterable[KeyChange]) -> str:
    texts = [str(change) for change in changes]
    more = len(texts) - SHOWN_KEYS
    return ", ".join(texts[:SHOWN_KEYS]) + (f" and {more} more" if more > 0 else "")


def _and(words: Iterable[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
