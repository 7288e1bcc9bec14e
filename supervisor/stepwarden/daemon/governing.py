"""Asks the governor for every worker: who is there, who may die, and what to tell of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stepwarden.core.event import Event, Kind
from stepwarden.core.governor import (
    Frozen,
    GovernorPolicy,
    Held,
    Leave,
    Refusal,
    Seen,
    new_governor,
)
from stepwarden.core.lifecycle import RESTING, State
from stepwarden.core.sentences import seconds
from stepwarden.daemon.grouping import Groups
from stepwarden.daemon.unit import Unit
from stepwarden.naming import first_names


class Governing:
    """One governor for all workers of this daemon."""

    def __init__(
        self,
        units: Mapping[str, Unit],
        groups: Groups,
        policy: GovernorPolicy,
        now: float,
        note: Callable[[Event], None],
    ) -> None:
        self._units = units
        self._groups = groups
        self._governor = new_governor(policy, now)
        self._note = note
        self.freezes = 0
        self.held_up = {why.value: 0 for why in Held}

    def reconfigure(self, policy: GovernorPolicy, now: float) -> None:
        """Other numbers hold from now on."""
        self._governor = self._governor.reconfigured(policy, now)

    def look(self, now: float) -> None:
        """Take in how all workers stand; a freeze that begins or ends is told."""
        before = self._governor.frozen
        self._governor = self._governor.looked(self._seen(), now)
        after = self._governor.frozen
        if after is not None and before is None:
            self.freezes += 1
            self._note(self._tell_frozen(after))
        elif after is None and before is not None:
            self._note(_tell_thawed(before, now))

    def leave_of(self, unit: Unit) -> Leave:
        """What this worker asks before it dies by a verdict."""

        def leave(capped: bool, now: float) -> Refusal | None:
            name = unit.config.name
            self.look(now)  # others may have turned suspect in this very turn
            self._governor, held = self._governor.asked(name, capped, now)
            if held is None:
                return None
            self.held_up[held.value] += 1
            return Refusal(held, self._sentence(held, name, now))

        return leave

    @property
    def frozen(self) -> bool:
        """Whether nobody is killed now."""
        return self._governor.frozen is not None

    @property
    def tokens(self) -> float:
        """Deaths by verdict that may be had now."""
        return self._governor.tokens

    def standing(self, now: float) -> str:
        """What an operator should know of it now; "" for nothing."""
        frozen, waiting = self._governor.frozen, self._governor.waiting
        if frozen is not None:
            left = seconds(frozen.left(now))
            return f"kills are frozen for {left} more: {_majority(frozen)} turned suspect at once"
        if not waiting:
            return ""
        names = first_names([one.worker for one in waiting])
        return f"the governor holds up the death of {names}: {self._bucket}"

    @property
    def _bucket(self) -> str:
        policy = self._governor.policy
        return f"{policy.deaths} deaths by verdict within {seconds(policy.within)} are used up"

    def _seen(self) -> list[Seen]:
        found = []
        for name, unit in self._units.items():
            state = unit.state
            if state.lifecycle in RESTING or state.held:
                continue
            suspect = state.lifecycle is State.UNHEALTHY
            party = self._groups.name_of(name)
            party = f"group {party}" if party else name
            since = state.since if suspect else None
            found.append(Seen(name, party, since, unit.policy.window))
        return found

    def _sentence(self, held: Held, worker: str, now: float) -> str:
        frozen = self._governor.frozen
        if held is Held.FREEZE and frozen is not None:
            left = seconds(frozen.left(now))
            why = f"{_majority(frozen)} turned suspect at once, so the cause is presumed common"
            return f"kills are frozen for at most {left} more ({why})"
        wait = seconds(self._governor.wait(worker, now))
        return f"{self._bucket}, the next one for it comes in {wait} at the latest"

    def _tell_frozen(self, frozen: Frozen) -> Event:
        policy = self._governor.policy
        names = first_names(list(frozen.suspects))
        text = f"kills are frozen for at most {seconds(policy.freeze_max)}: {_majority(frozen)}"
        text += f" turned suspect within one window ({names}); the cause is presumed common:"
        text += " look at the host (disk, memory, driver, network) and at this daemon"
        data: dict[str, float | int | str | None] = {
            "frozen": 1,
            "suspects": len(frozen.suspects),
            "independent": frozen.parties,
            "workers": names,
            "freeze_max": policy.freeze_max,
        }
        return Event(Kind.GOVERNOR, text, data=data)


def _majority(frozen: Frozen) -> str:
    return f"{len(frozen.suspects)} of {frozen.parties} independent workers"


def _tell_thawed(frozen: Frozen, now: float) -> Event:
    lasted = frozen.age(now)
    why = "they have had their time"
    if lasted < frozen.age(frozen.until):
        why = "no more than half of the workers are suspect any more"
    text = f"kills go on after {seconds(lasted)}: {why}"
    return Event(Kind.GOVERNOR, text, data={"frozen": 0, "seconds": lasted})
