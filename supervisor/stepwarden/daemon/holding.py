"""Which start has to wait, and for whom: `needs`, the order of a group, a group that ends together.

A worker is started when those it needs, and those before it in its group, are HEALTHY, and while
no member of its group is being ended or waits for its restart delay. A member that was stopped, or
has ended and by its policy stays so, holds up nobody of its group; what is needed by `needs` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping

from stepwarden.core import groups
from stepwarden.core.groups import GroupPolicy
from stepwarden.core.lifecycle import ENDING, State
from stepwarden.core.worker import Outcome
from stepwarden.daemon.unit import Unit


class Holds:
    """Says why a start is held, and wakes those who wait when anything has changed.

    `host`: what of the host is in the way of a worker; "" for nothing.
    """

    def __init__(
        self,
        units: Mapping[str, Unit],
        policies: Iterable[GroupPolicy] = (),
        host: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._units = units
        self._host = host
        self._group_of: dict[str, GroupPolicy] = {}
        self._change = asyncio.Event()
        self.regroup(policies)

    def regroup(self, policies: Iterable[GroupPolicy]) -> None:
        """These are the groups from now on."""
        self._group_of = {name: policy for policy in policies for name in policy.members}
        self._wake()

    def follow(self, _unit: Unit, outcome: Outcome, _now: float) -> None:
        """Some worker has moved: whoever waits looks again."""
        if outcome.events:
            self._wake()

    def _wake(self) -> None:
        self._change.set()
        self._change = asyncio.Event()

    async def next_change(self) -> None:
        """Wait until any worker has moved."""
        await self._change.wait()

    def reason(self, unit: Unit) -> str:
        """Why this worker is not to be started now; "" where nothing is in the way."""
        if in_the_way := self._host(unit.config.name):
            return in_the_way
        for other, incarnation in unit.after:
            if other.state.incarnation == incarnation and other.state.lifecycle in ENDING:
                return f"waits for the end of {other.config.name} after a reload"
        group = self._group_of.get(unit.config.name)
        if group is not None:
            busy = [name for name in group.members if name != unit.config.name]
            for other in self._existing(busy):
                text = _ends_together(other, group.name)
                if text:
                    return text
        before = () if group is None else groups.before(group, unit.config.name)
        mates = [other for other in self._existing(before) if not _rests(other)]
        for other in (*self._existing(unit.config.needs), *mates):
            if other.state.lifecycle is not State.HEALTHY:
                return f"waits for {other.config.name}, which is {other.state.lifecycle.value}"
        return ""

    def _existing(self, names: Iterable[str]) -> list[Unit]:
        return [self._units[name] for name in names if name in self._units]


def _rests(member: Unit) -> bool:
    """It was stopped by the operator or rests by its policy: its group goes on without it."""
    state = member.state
    return state.lifecycle is State.STOPPED and (state.wish == "down" or state.incarnation > 0)


def _ends_together(other: Unit, group: str) -> str:
    name, state = other.config.name, other.state
    if state.lifecycle in ENDING:
        return f"waits until the tree of {name} is gone; group {group} starts together"
    if state.lifecycle is State.RESTARTING:
        return f"waits for the restart delay of {name}; group {group} starts together"
    return ""
