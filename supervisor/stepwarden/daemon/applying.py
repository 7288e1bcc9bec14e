"""Makes another configuration hold, in one turn of the loop: between two judgements, never half."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from stepwarden.clock import Clock
from stepwarden.config import Config, WorkerConfig
from stepwarden.core import reconfigured
from stepwarden.core.commands import regroup
from stepwarden.core.event import Event, Kind
from stepwarden.core.lifecycle import LIVE, State
from stepwarden.core.worker import Outcome, WorkerState
from stepwarden.daemon.grouping import Groups
from stepwarden.daemon.holding import Holds
from stepwarden.daemon.keeping import Keeper
from stepwarden.daemon.life import Life
from stepwarden.daemon.loop import VerdictLoop
from stepwarden.daemon.plan import Plan
from stepwarden.daemon.runners import ATTACH
from stepwarden.daemon.unit import Unit
from stepwarden.edge.reload_views import Effect


@dataclass(frozen=True, slots=True)
class Parts:
    """What a configuration is spread over. `units` is the one mapping that all parts share.

    `lived`: the highest incarnation that history tells of a worker. `renew_watching`: looks at a
    life from outside as it is configured now.
    """

    units: dict[str, Unit]
    loop: VerdictLoop
    groups: Groups
    holds: Holds
    keeper: Keeper
    clock: Clock
    note: Callable[[Event], None]
    lived: Callable[[str], int]
    renew_watching: Callable[[Unit, Life], None]


class Applier:
    """Applies configurations, and forgets removed workers when their last process is gone."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._units = parts.units
        self._numbers: dict[str, int] = {}

    def apply(self, new: Config, planned: Plan) -> None:
        """Make `new` hold, as planned just now. Does not wait."""
        effects = {change.worker: change.effect for change in planned.changes if change.worker}
        now = self._parts.clock.monotonic()
        policies = list(new.groups.values())
        self._parts.groups.regroup(policies)
        self._parts.holds.regroup(policies)
        leaving = [unit for name, unit in self._units.items() if name not in new.workers]
        lacking = planned.outdated
        fresh = [self._configured(worker, lacking, now) for worker in new.workers.values()]
        self._units.clear()
        self._units.update((unit.config.name, unit) for unit in (*fresh, *leaving))
        ending = self._end(leaving, effects, now)
        self._begin(fresh, effects, ending, now)

    def follow(self, unit: Unit, _outcome: Outcome, _now: float) -> None:
        """A removed worker whose tree is gone is forgotten."""
        state = unit.state
        gone = state.lifecycle is State.STOPPED and not state.leftovers
        if not (unit.removed and gone and self._units.get(state.name) is unit):
            return
        del self._units[state.name]
        self._numbers[state.name] = state.incarnation
        self._parts.keeper.forget_gone(state.name)
        self._parts.note(Event(Kind.DAEMON, "removed: nothing of it is left", state.name))

    def _configured(
        self, worker: WorkerConfig, lacking: Mapping[str, tuple[str, ...]], now: float
    ) -> Unit:
        """The unit that has this configuration from now on."""
        unit = self._units.get(worker.name)
        if unit is None:
            return Unit(worker, self._first_state(worker.name, now))
        before, unit.config = unit.policy, worker
        if worker.name not in lacking:
            return unit
        outcome = reconfigured.judged_anew(unit.state, before, worker.policy, now)
        self._parts.loop.apply(unit, outcome, now)
        life = unit.life
        if life is not None:
            life.outdated = lacking[worker.name]
            if life.config is not None:
                self._adjust(unit, life, life.config)
        # Who is late may be late no more; all others are looked at within a second anyway.
        unit.dirty = unit.dirty or bool(unit.state.suspicions)
        return unit

    def _first_state(self, name: str, now: float) -> WorkerState:
        kept, _ = self._parts.keeper.recall(name)
        numbers = [self._numbers.get(name, 0), self._parts.lived(name)]
        if kept is None:
            return WorkerState(name, since=now, incarnation=max(numbers))
        number = max(kept.incarnation, *numbers)
        return WorkerState(name, since=now, incarnation=number, wish=kept.wish)

    def _adjust(self, unit: Unit, life: Life, running: WorkerConfig) -> None:
        """What a process did not get at its start holds for it at once."""
        new = unit.config
        if life.outdated:
            # What ends it, or looks at it, is what belongs to what it was started with.
            life.config = replace(running, policy=new.policy, stop_grace=new.stop_grace)
            return
        life.config = replace(
            running,
            policy=new.policy,
            stop_command=new.stop_command,
            stop_signal=new.stop_signal,
            stop_grace=new.stop_grace,
            ready=new.ready,
            progress=new.progress,
        )
        looked_at = (running.ready, running.progress) != (new.ready, new.progress)
        if looked_at and life.main is not None and unit.state.lifecycle in LIVE:
            self._parts.renew_watching(unit, life)

    def _end(
        self, leaving: Iterable[Unit], effects: dict[str, Effect], now: float
    ) -> list[tuple[Unit, int]]:
        """Those that are ended by this reload, each with the life that is."""
        ending = []
        for unit in leaving:
            if not unit.removed:
                unit.removed = True
                self._take(unit, self._removal(unit, now), now)
            ending.append((unit, unit.state.incarnation))
        for name, effect in effects.items():
            if effect is Effect.RESTARTED:
                unit = self._units[name]
                ending.append((unit, unit.state.incarnation))
                self._take(unit, self._renewal(unit, now), now)
        return ending

    def _removal(self, unit: Unit, now: float) -> Outcome:
        if self._is_others(unit):
            return reconfigured.let_go(unit.state, now, removed=True)
        return reconfigured.removed(unit.state, now)

    def _renewal(self, unit: Unit, now: float) -> Outcome:
        if self._is_others(unit):
            return reconfigured.let_go(unit.state, now, removed=False)
        keys = " and ".join(() if unit.life is None else unit.life.outdated) or "process"
        return regroup(unit.state, now, f"restarted: its {keys} is another one after a reload")

    def _is_others(self, unit: Unit) -> bool:
        attached = unit.life is not None and unit.life.runner == ATTACH
        return attached and unit.state.lifecycle in LIVE

    def _begin(
        self,
        units: Iterable[Unit],
        effects: dict[str, Effect],
        ending: list[tuple[Unit, int]],
        now: float,
    ) -> None:
        for unit in units:
            effect = effects.get(unit.config.name)
            if effect in (Effect.ADDED, Effect.RESTARTED):
                unit.after = tuple(end for end in ending if end[0] is not unit)
            if effect is Effect.ADDED:
                self._take(unit, self._addition(unit, now), now)
            elif effect is Effect.ADJUSTED and unit.policy.autostart:
                started = reconfigured.let_start(unit.state, now)
                if started.events:
                    self._take(unit, started, now)

    def _addition(self, unit: Unit, now: float) -> Outcome:
        unit.removed = False
        return reconfigured.added(unit.state, unit.policy, now)

    def _take(self, unit: Unit, outcome: Outcome, now: float) -> None:
        self._parts.loop.apply(unit, outcome, now)
        self._parts.loop.poke(unit)
