"""Workers that are of no use without each other: who starts again with whom, and how often.

    restart_member   each for itself; the group only orders the starts
    restart_group    when one dies, all others are ended too and the whole group starts again
    restart_rest     as restart_group, for those that come after it in the order of the members

One restart budget holds for the whole group: a death of any member counts, those that are ended
with it do not. When it is spent, every member is FAILED.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum

from stepwarden.core import restarts
from stepwarden.core.policy import RestartPolicy
from stepwarden.core.restarts import Ledger


class OnDead(StrEnum):
    """Who else starts again when a member dies."""

    MEMBER = "restart_member"
    GROUP = "restart_group"
    REST = "restart_rest"


@dataclass(frozen=True, slots=True)
class GroupPolicy:
    """A group as the file says it. `members` in the order of their start."""

    name: str
    members: tuple[str, ...]
    on_dead: OnDead = OnDead.GROUP
    restart: RestartPolicy = field(default_factory=RestartPolicy)


@dataclass(frozen=True, slots=True)
class GroupState:
    """What is remembered of a group: the deaths of its members."""

    ledger: Ledger = field(default_factory=Ledger)


@dataclass(frozen=True, slots=True)
class Consequence:
    """What a death means for the others: those who start again with it, or all have failed."""

    state: GroupState
    restart: tuple[str, ...] = ()
    failed: bool = False
    sentence: str = ""


def member_died(
    policy: GroupPolicy, state: GroupState, member: str, uptime: float, now: float
) -> Consequence:
    """A member is DEAD after `uptime` seconds of being ready (0: it never was)."""
    ledger = restarts.record_death(state.ledger, policy.restart, uptime, now)
    after = replace(state, ledger=ledger)
    if restarts.spent(ledger, policy.restart, now):
        used = ledger.used(policy.restart, now)
        text = f"group {policy.name} gave up after {used} deaths of its members"
        text += f" (restart.limit {policy.restart.limit}); the last was {member}"
        return Consequence(after, failed=True, sentence=text)
    others = companions(policy, member)
    text = f"restarted with its group {policy.name}, because {member} died" if others else ""
    return Consequence(after, others, sentence=text)


def recalled(ledgers: Iterable[Ledger]) -> GroupState:
    """What a group remembers after a restart of the daemon: the deaths its members remember.

    Of deaths in a row it knows the longest row of one member, for nobody wrote down how those of
    several interleaved; it gives up later by that rule, never earlier.
    """
    known = list(ledgers)
    deaths = sorted(at for ledger in known for at in ledger.deaths)
    streak = max((ledger.streak for ledger in known), default=0)
    return GroupState(Ledger(tuple(deaths), streak))


def companions(policy: GroupPolicy, member: str) -> tuple[str, ...]:
    """The members that are ended and started again when this one dies."""
    if policy.on_dead is OnDead.MEMBER:
        return ()
    place = policy.members.index(member)
    first = 0 if policy.on_dead is OnDead.GROUP else place
    return tuple(name for name in policy.members[first:] if name != member)


def before(policy: GroupPolicy, member: str) -> tuple[str, ...]:
    """The members that are to be up before this one is started."""
    return policy.members[: policy.members.index(member)]


def started_again(state: GroupState) -> GroupState:
    """The operator started a member: the group's count begins anew, as the member's own does."""
    return replace(state, ledger=Ledger())
