"""Where a worker begins when a daemon starts: afresh, or where an earlier daemon left it.

The operator's last word outlives everything. Counters, delays and FAILED hold as long as the host
runs; after a boot they begin anew. A life that runs on is adopted: nothing of it is judged by what
happened while nobody looked. A life that was being ended when the daemon died is ended first.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from stepwarden.core.action import EndTree
from stepwarden.core.burying import buried
from stepwarden.core.event import Kind
from stepwarden.core.lifecycle import ENDING, State, Trigger
from stepwarden.core.memory import Kept, restart_deadline
from stepwarden.core.policy import WorkerPolicy
from stepwarden.core.worker import Outcome, WorkerState, begin_life

LEFT_BEHIND = "an earlier daemon left its processes behind; they are ended first"


class Found(Enum):
    """What was found of its last life on the host."""

    NOTHING = "nothing"
    REST = "processes that are to be ended"
    LIFE = "a life that can be adopted"


def resume(
    policy: WorkerPolicy,
    now: float,
    kept: Kept | None = None,
    found: Found = Found.NOTHING,
    *,
    same_boot: bool = True,
    incarnation: int = 0,
    spread: float = 0.0,
) -> Outcome:
    """A worker that the configuration names, when the daemon starts.

    `kept`: what an earlier daemon wrote down; None where nothing is known. `same_boot`: it wrote
    that since the host booted. `incarnation`: the highest that anything on the host tells of.
    """
    outcome = Outcome(_recalled(policy, now, kept, same_boot, incarnation))
    wanted = _wanted(policy, kept)
    told = kept.lifecycle if kept is not None and same_boot else None
    if found is Found.LIFE and told not in ENDING and wanted:
        _adopt(outcome, now)
    elif found is not Found.NOTHING:
        _end_first(outcome, told, wanted, now)
    elif not wanted:
        _rest(outcome, kept)
    elif told is State.DEAD:
        # Its tree was gone when the daemon died; what was to follow follows now.
        outcome.state = replace(outcome.state, lifecycle=State.DEAD)
        return buried(outcome.state, policy, frozenset(), now, spread)
    elif kept is not None and told in {State.FAILED, State.RESTARTING}:
        _go_on(outcome, kept)
    else:
        begin_life(outcome, Trigger.START, now, "started with the daemon")
    return outcome


def _wanted(policy: WorkerPolicy, kept: Kept | None) -> bool:
    if kept is None or not kept.wish:
        return policy.autostart
    return kept.wish == "up"


def _recalled(
    policy: WorkerPolicy, now: float, kept: Kept | None, same_boot: bool, incarnation: int
) -> WorkerState:
    state = WorkerState(policy.name, since=now, incarnation=incarnation)
    if kept is None:
        return state
    state = replace(
        state,
        incarnation=max(incarnation, kept.incarnation),
        wish=kept.wish,
        last_exit=kept.last_exit,
        last_death=kept.last_death,
    )
    if not same_boot:
        return state
    return replace(
        state,
        ready_at=kept.ready_at,
        deaths=kept.deaths,
        false_alarms=kept.false_alarms,
        ledger=kept.ledger,
        clean_exit=kept.clean_exit,
        give_up=kept.give_up,
        cause=kept.cause,
    )


def _adopt(outcome: Outcome, now: float) -> None:
    outcome.state = replace(outcome.state, spawned_at=now)
    outcome.move(
        Trigger.ADOPT,
        now,
        "an earlier daemon started it and it runs on; unknown until something is seen of it",
    )


def _end_first(outcome: Outcome, told: State | None, wanted: bool, now: float) -> None:
    state = outcome.state
    dead = told is State.DEAD and wanted
    outcome.state = replace(
        state,
        lifecycle=State.DEAD if dead else State.STOPPING,
        restart_wanted=wanted and not dead and not state.give_up,
        stop_wanted=not wanted,
        sentence=LEFT_BEHIND,
        since=now,
    )
    outcome.note(Kind.BURIAL, LEFT_BEHIND)
    outcome.actions.append(EndTree(state.incarnation))


def _rest(outcome: Outcome, kept: Kept | None) -> None:
    if kept is not None and kept.wish == "down":
        text = "the operator stopped it; it stays so until he starts it"
        outcome.state = replace(outcome.state, sentence=text)


def _go_on(outcome: Outcome, kept: Kept) -> None:
    outcome.state = replace(
        outcome.state,
        lifecycle=kept.lifecycle,
        sentence=kept.sentence,
        restart_at=restart_deadline(kept),
    )
