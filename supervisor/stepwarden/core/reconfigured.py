"""What a new configuration says to a worker: judge it otherwise, begin, begin anew, leave."""

from __future__ import annotations

from dataclasses import replace

from stepwarden.core import lifecycle
from stepwarden.core.action import EndTree
from stepwarden.core.calls import recorded
from stepwarden.core.former import with_former
from stepwarden.core.lifecycle import State, Trigger
from stepwarden.core.policy import WorkerPolicy
from stepwarden.core.restarts import Ledger
from stepwarden.core.worker import Outcome, WorkerState, begin_life

REMOVED = "stopped: the configuration does not name it any more"


@recorded("before", "after", "now")
def judged_anew(
    state: WorkerState, before: WorkerPolicy, after: WorkerPolicy, now: float
) -> Outcome:
    """Another policy holds from now on; what runs already keeps what it had where that is more."""
    if state.lifecycle not in lifecycle.LIVE:
        return Outcome(state)
    return Outcome(replace(state, former=with_former(state.former, before, after, now)))


@recorded("policy", "now")
def added(state: WorkerState, policy: WorkerPolicy, now: float) -> Outcome:
    """The configuration names it now: it starts, unless the operator or `autostart` says no.

    Also one that is still being ended because an earlier configuration did not name it.
    """
    outcome = Outcome(state)
    wanted = state.wish == "up" if state.wish else policy.autostart
    if not wanted:
        text = "the operator stopped it; it stays so until he starts it"
        outcome.state = replace(state, sentence=text if state.wish else state.sentence)
    elif state.lifecycle in lifecycle.ENDING:
        outcome.state = replace(
            state, restart_wanted=True, stop_wanted=False, give_up="", ledger=Ledger()
        )
    elif state.lifecycle in lifecycle.RESTING and not state.leftovers:
        begin_life(outcome, Trigger.START, now, "started: it is new in the configuration")
    return outcome


@recorded("now")
def let_start(state: WorkerState, now: float) -> Outcome:
    """`autostart` is true now: one that nobody has started or stopped yet starts."""
    outcome = Outcome(state)
    if state.lifecycle is State.STOPPED and not state.wish and not state.incarnation:
        begin_life(outcome, Trigger.START, now, "started: autostart is true now")
    return outcome


@recorded("now")
def removed(state: WorkerState, now: float) -> Outcome:
    """The configuration does not name it any more: its tree is ended, with its grace."""
    outcome = Outcome(
        replace(state, restart_wanted=False, stop_wanted=True, give_up="", suspicions=())
    )
    if outcome.move(Trigger.STOP, now, REMOVED) and state.lifecycle in lifecycle.LIVE:
        outcome.actions.append(EndTree(state.incarnation))
    return outcome


@recorded("now", "removed")
def let_go(state: WorkerState, now: float, *, removed: bool) -> Outcome:
    """What something else started is not ours to end; without it, its worker rests or goes on."""
    text = REMOVED if removed else "let go: it is described otherwise now"
    outcome = Outcome(replace(state, stop_wanted=removed, give_up="", suspicions=()))
    if outcome.move(Trigger.STOP, now, text):
        if removed:
            outcome.move(Trigger.ENDED, now, f"{text}; its processes are left alone")
        else:
            begin_life(outcome, Trigger.TURNED_OVER, now, text)
    return outcome
