"""Carries a death in a group over to the other members."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from stepwarden.core import groups
from stepwarden.core.burying import rests_after
from stepwarden.core.commands import give_up, regroup
from stepwarden.core.event import Event, Kind
from stepwarden.core.groups import GroupPolicy, GroupState
from stepwarden.core.lifecycle import State
from stepwarden.core.restarts import Ledger
from stepwarden.core.worker import Outcome
from stepwarden.daemon.unit import Unit

Apply = Callable[[Unit, Outcome, float], None]


class Groups:
    """Knows the groups of this configuration and what each remembers."""

    def __init__(self, units: Mapping[str, Unit], policies: Iterable[GroupPolicy] = ()) -> None:
        self._units = units
        self._group_of: dict[str, GroupPolicy] = {}
        self._states: dict[str, GroupState] = {}
        self._apply: Apply | None = None
        self.regroup(policies)

    def regroup(self, policies: Iterable[GroupPolicy]) -> None:
        """These are the groups from now on; what is remembered of those that stay is kept."""
        self._group_of = {name: policy for policy in policies for name in policy.members}
        names = {policy.name for policy in self._group_of.values()}
        self._states = {name: state for name, state in self._states.items() if name in names}

    def attach(self, apply: Apply) -> None:
        """Give it the way to take an outcome over."""
        self._apply = apply

    def follow(self, unit: Unit, outcome: Outcome, now: float) -> None:
        """Look whether this outcome means something to the group of its worker; apply that."""
        policy = self._group_of.get(unit.config.name)
        if policy is None:
            return
        for event in outcome.events:
            if event.kind is Kind.TRANSITION and event.to_state == State.DEAD.value:
                self._died(policy, unit, event, now)
            elif event.kind is Kind.OPERATOR and event.data.get("command") != "stop":
                self._states[policy.name] = groups.started_again(self._state(policy))

    def name_of(self, worker: str) -> str:
        """The group that it belongs to; empty: none."""
        policy = self._group_of.get(worker)
        return "" if policy is None else policy.name

    def ledger(self, worker: str) -> Ledger | None:
        """The deaths of its group, which count for it; None: it is in no group."""
        policy = self._group_of.get(worker)
        return None if policy is None else self._state(policy).ledger

    def used(self, worker: str, now: float) -> int | None:
        """Deaths that count against the limit of its group now; None: it is in no group."""
        policy = self._group_of.get(worker)
        return None if policy is None else self._state(policy).ledger.used(policy.restart, now)

    def recall(self) -> None:
        """Go on with what the members remember of their deaths, when all have been resumed."""
        for policy in self._group_of.values():
            ledgers = [member.state.ledger for member in self._members(policy.members)]
            self._states[policy.name] = groups.recalled(ledgers)

    def _state(self, policy: GroupPolicy) -> GroupState:
        return self._states.get(policy.name, GroupState())

    def _died(self, policy: GroupPolicy, unit: Unit, event: Event, now: float) -> None:
        if rests_after(unit.policy, unit.state.clean_exit):
            return  # that end is one its own policy expects; the others have nothing to do with it
        uptime = event.data.get("uptime")
        seconds = float(uptime) if isinstance(uptime, int | float) else 0.0
        then = groups.member_died(policy, self._state(policy), unit.config.name, seconds, now)
        self._states[policy.name] = then.state
        if then.failed:
            for other in self._members(policy.members):
                self._take(other, give_up(other.state, now, then.sentence), now)
            return
        for other in self._members(then.restart):
            self._take(other, regroup(other.state, now, then.sentence), now)

    def _take(self, unit: Unit, outcome: Outcome, now: float) -> None:
        if unit.policy.observe:
            return  # what befalls its group is no reason to signal it
        if self._apply is not None:
            self._apply(unit, outcome, now)

    def _members(self, names: Iterable[str]) -> list[Unit]:
        return [self._units[name] for name in names if name in self._units]
