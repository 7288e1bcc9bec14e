"""What a reload does to whom: worked out before anything is touched, and shown by a dry run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from stepwarden.config import Config, WorkerConfig
from stepwarden.config.difference import Changes, Difference, KeyChange, needs_restart
from stepwarden.config.difference import Effect as When
from stepwarden.core.lifecycle import ENDING, LIVE
from stepwarden.core.sentences import seconds
from stepwarden.daemon.runners import ATTACH
from stepwarden.daemon.unit import Unit
from stepwarden.edge.reload_views import Effect, ReloadChange

NOW, ASK = "now", "ask"
"""`supervisor.reload.restart`: what becomes of a worker whose process would need other things."""

SHOWN_KEYS = 6


def outdated(unit: Unit, wanted: WorkerConfig) -> tuple[str, ...]:
    """What the process of a worker does not have as it is wanted; () for all, or no process."""
    if unit.life is None or unit.state.lifecycle not in LIVE:
        return ()
    return needs_restart(unit.running_config, wanted)


def plan(differs: Difference, new: Config, units: Mapping[str, Unit]) -> tuple[ReloadChange, ...]:
    """Everything that applying `new` does. Nothing here changes anything."""
    return tuple(_plan(differs, new, units))


def _plan(differs: Difference, new: Config, units: Mapping[str, Unit]) -> Iterator[ReloadChange]:
    if differs.settings:
        text = _list(differs.settings)
        yield ReloadChange("", "supervisor", Effect.ADJUSTED, text, _keys(differs.settings))
    for name, changes in differs.groups.items():
        text = _list(changes)
        yield ReloadChange("", f"group {name}", Effect.ADJUSTED, text, _keys(changes))
    for name in differs.removed:
        if name in units:
            yield _worker(name, Effect.REMOVED, _of_removed(units[name]))
    for name, worker in new.workers.items():
        if name in differs.added:
            yield _worker(name, Effect.ADDED, _of_added(worker, units.get(name)))
        elif name in units:
            yield from _of_known(units[name], worker, differs.changed.get(name, ()), new)


def _of_known(
    unit: Unit, wanted: WorkerConfig, changes: Changes, new: Config
) -> Iterator[ReloadChange]:
    keys = outdated(unit, wanted)
    # Of a worker that waits for a restart since an earlier reload nothing may be different now.
    pending = unit.life is not None and bool(unit.life.outdated)
    if not changes and not (keys and pending):
        return
    name, told = wanted.name, _keys(changes) or keys
    if keys and restarts_at_once(unit, new.supervisor.reload_restart):
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
