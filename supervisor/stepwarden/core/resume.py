"""Where a worker begins when a daemon starts: afresh, or where an earlier daemon left it.

The operator's last word outlives everything. Counters, delays, FAILED and a rest that the policy
asked for hold as long as the host runs; after a boot they begin anew. A life that runs on is
adopted: nothing of it is judged by what happened while nobody looked. A life that was being ended
when the daemon died is ended first, and what was to follow follows then.

The newest note may be lost with the daemon. What it says of a life that the host knows a younger
one of is not believed; what it says of the worker is.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from stepwarden.core.action import EndTree
from stepwarden.core.burying import UNKILLABLE, buried, rests_after
from stepwarden.core.clocks import Cause
from stepwarden.core.deadline import Deadline
from stepwarden.core.event import Kind
from stepwarden.core.lifecycle import LIVE, State, Trigger
from stepwarden.core.memory import Kept
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
    stale = kept is not None and incarnation > kept.incarnation
    told = kept if same_boot and not stale else None
    outcome = Outcome(_recalled(policy, now, kept, same_boot, incarnation))
    if told is not None:
        outcome.state = _with_life(outcome.state, told)
    wanted = outcome.state.wish == "up" if outcome.state.wish else policy.autostart
    settled = told is not None and told.lifecycle not in LIVE and told.cause != Cause.PLATFORM
    if found is Found.LIFE and not settled and outcome.state.wish != "down":
        _adopt(outcome, now)
    elif found is not Found.NOTHING:
        _end_first(outcome, told, wanted, now)
    elif not wanted:
        _rest(outcome)
    elif told is None:
        begin_life(outcome, Trigger.START, now, "started with the daemon")
    else:
        outcome = _follow(outcome, policy, told, now, spread)
        outcome.call = None  # a recording begins with what has come of it
    return outcome


def _follow(
    outcome: Outcome, policy: WorkerPolicy, told: Kept, now: float, spread: float
) -> Outcome:
    """Nothing of its last life is left; what was to follow when the daemon ended follows now."""
    rests = rests_after(policy, told.clean_exit)
    if _has_failed(told):
        outcome.state = replace(outcome.state, lifecycle=State.FAILED, sentence=told.sentence)
    elif told.lifecycle is State.RESTARTING or _was_waiting(told):
        _wait_on(outcome, policy, told, now)
    elif told.lifecycle is State.STOPPED and told.cause and rests:
        outcome.state = replace(outcome.state, sentence=told.sentence)
    elif _died(told) or (told.lifecycle is State.STOPPING and told.give_up):
        ending = State.STOPPING if told.lifecycle is State.STOPPING and told.give_up else State.DEAD
        outcome.state = replace(outcome.state, lifecycle=ending)
        return buried(outcome.state, policy, frozenset(), now, spread)
    else:
        begin_life(outcome, Trigger.START, now, "started with the daemon")
    return outcome


def _has_failed(told: Kept) -> bool:
    """FAILED for good. One that waits for its platform can only come back while it is awaited."""
    lasting = told.cause not in {Cause.PLATFORM, UNKILLABLE}
    return told.lifecycle is State.FAILED and (lasting or bool(told.give_up))


def _was_waiting(told: Kept) -> bool:
    """The daemon ended it in the middle of its restart delay."""
    return told.lifecycle is State.STOPPED and told.restart_at is not None


def _died(told: Kept) -> bool:
    """Its last life ended by a death whose consequences it has not met yet."""
    if told.lifecycle in {State.DEAD, State.RESTARTING}:
        return True
    if told.cause == Cause.PLATFORM or told.restart_wanted:
        return False
    return told.lifecycle not in LIVE and bool(told.cause)


def _recalled(
    policy: WorkerPolicy, now: float, kept: Kept | None, same_boot: bool, incarnation: int
) -> WorkerState:
    """What is remembered of the worker, whatever life it was in."""
    state = WorkerState(policy.name, since=now, incarnation=incarnation)
    if kept is None:
        return state
    state = replace(
        state,
        incarnation=max(incarnation, kept.incarnation),
        # No life begins while the operator wants none: one that did tells of a lost "start".
        wish="up" if kept.wish == "down" and incarnation > kept.incarnation else kept.wish,
        last_exit=kept.last_exit,
        last_death=kept.last_death,
    )
    if not same_boot:
        return state
    return replace(state, deaths=kept.deaths, false_alarms=kept.false_alarms, ledger=kept.ledger)


def _with_life(state: WorkerState, told: Kept) -> WorkerState:
    """What is remembered of its last life."""
    return replace(
        state,
        ready_at=told.ready_at,
        clean_exit=told.clean_exit,
        give_up=told.give_up,
        cause=told.cause,
    )


def _adopt(outcome: Outcome, now: float) -> None:
    outcome.state = replace(outcome.state, spawned_at=now, give_up="")
    outcome.move(
        Trigger.ADOPT,
        now,
        "an earlier daemon started it and it runs on; unknown until something is seen of it",
    )


def _end_first(outcome: Outcome, told: Kept | None, wanted: bool, now: float) -> None:
    give_up, dead = "", False
    if told is not None and wanted:
        give_up = told.give_up or (told.sentence if _has_failed(told) else "")
        dead = _died(told) and not give_up
    outcome.state = replace(
        outcome.state,
        lifecycle=State.DEAD if dead else State.STOPPING,
        give_up=give_up,
        restart_wanted=wanted and not dead and not give_up,
        stop_wanted=not wanted,
        cause=outcome.state.cause if dead or give_up else "",
        sentence=LEFT_BEHIND,
        since=now,
    )
    outcome.note(Kind.BURIAL, LEFT_BEHIND)
    outcome.actions.append(EndTree(outcome.state.incarnation))


def _rest(outcome: Outcome) -> None:
    if outcome.state.wish == "down":
        text = "the operator stopped it; it stays so until he starts it"
        outcome.state = replace(outcome.state, sentence=text)


def _wait_on(outcome: Outcome, policy: WorkerPolicy, told: Kept, now: float) -> None:
    """Never longer than the policy of today allows, nor for ever where nobody wrote it down."""
    longest = now + policy.restart.max_delay * (1.0 + policy.restart.jitter)
    at = now if told.restart_at is None else min(told.restart_at, longest)
    outcome.state = replace(
        outcome.state,
        lifecycle=State.RESTARTING,
        sentence=told.sentence,
        restart_at=Deadline(at).not_before(now),
    )
