"""What others say to a worker: the operator, its group, the daemon that ends."""

from __future__ import annotations

from dataclasses import replace

from stepwarden.core import lifecycle
from stepwarden.core.action import EndTree
from stepwarden.core.calls import recorded
from stepwarden.core.event import Kind
from stepwarden.core.lifecycle import State, Trigger
from stepwarden.core.restarts import Ledger
from stepwarden.core.worker import Outcome, WorkerState, begin_life


@recorded("word", "now", "by")
def command(state: WorkerState, word: str, now: float, by: str = "the operator") -> Outcome:
    """The operator says `start`, `stop` or `restart`; this stays his wish until he says another."""
    outcome = _told(state, word, now, by)
    if outcome.refusal is None:
        outcome.state = replace(outcome.state, wish="down" if word == "stop" else "up")
    return outcome


BY_DAEMON = "stopped by the ending supervisor"
BY_HOST = "stopped by the service manager: the host shuts down"


@recorded("now", "why")
def end_with_daemon(state: WorkerState, now: float, why: str = BY_DAEMON) -> Outcome:
    """The daemon, or the host, ends and takes the worker with it; nobody wished that it stay down.

    What was to follow a death is kept in the cause, for the next daemon. One that rests is left
    as it is: FAILED outlives the daemon.
    """
    outcome = Outcome(state)
    if state.lifecycle in lifecycle.RESTING:
        return outcome
    cause = "" if state.lifecycle in lifecycle.LIVE else state.cause
    outcome.state = replace(state, restart_wanted=False, stop_wanted=True, suspicions=())
    if outcome.move(Trigger.STOP, now, why, cause):
        _end_if_live(outcome, state)
    return outcome


@recorded("now", "sentence")
def regroup(state: WorkerState, now: float, sentence: str) -> Outcome:
    """Its group starts again: end its tree and begin a new life. No death is counted."""
    outcome = Outcome(state)
    if state.lifecycle in lifecycle.LIVE:
        outcome.state = replace(state, restart_wanted=True, suspicions=())
        outcome.move(Trigger.RESTART, now, sentence)
        _end_if_live(outcome, state)
    return outcome


@recorded("now", "sentence")
def give_up(state: WorkerState, now: float, sentence: str) -> Outcome:
    """The restart budget of its group is spent: it ends in FAILED, now or when its tree is gone."""
    outcome = Outcome(state)
    if state.lifecycle is State.RESTARTING:
        outcome.move(Trigger.GIVEN_UP, now, sentence)
    elif state.lifecycle in lifecycle.LIVE:
        outcome.state = replace(state, give_up=sentence, restart_wanted=False, suspicions=())
        outcome.move(Trigger.STOP, now, sentence)
        _end_if_live(outcome, state)
    elif _still_to_follow(state):
        outcome.state = replace(state, give_up=sentence, restart_wanted=False)
    return outcome


def _still_to_follow(state: WorkerState) -> bool:
    """Whether another life would follow when its tree is gone, or the unkillable at last is."""
    ending = state.lifecycle in lifecycle.ENDING
    stuck = state.lifecycle is State.FAILED and bool(state.leftovers)
    return (ending or stuck) and not state.stop_wanted


def _end_if_live(outcome: Outcome, before: WorkerState) -> None:
    """Have its tree ended, where that has not begun yet."""
    if before.lifecycle in lifecycle.LIVE:
        outcome.actions.append(EndTree(before.incarnation))


def _told(state: WorkerState, word: str, now: float, by: str) -> Outcome:
    outcome = Outcome(state)
    if word != "stop" and state.leftovers:
        pids = ", ".join(str(process.pid) for process in sorted(state.leftovers))
        outcome.refusal = f"processes of its last life cannot be killed: {pids}"
        return outcome
    outcome.note(Kind.OPERATOR, f"{by} says {word}", command=word)
    {"start": _start, "stop": _stop, "restart": _restart}[word](outcome, now, by)
    return outcome


def _start(outcome: Outcome, now: float, by: str) -> None:
    state = outcome.state
    if state.lifecycle is State.STOPPING:
        outcome.state = replace(
            state, restart_wanted=True, stop_wanted=False, give_up="", cause="", ledger=Ledger()
        )
    elif state.lifecycle is State.DEAD:
        _restart(outcome, now, by)
    elif state.lifecycle in lifecycle.RESTING or state.lifecycle is State.RESTARTING:
        outcome.state = replace(state, ledger=Ledger())
        begin_life(outcome, Trigger.START, now, f"started by {by}")


def _stop(outcome: Outcome, now: float, by: str) -> None:
    state = outcome.state
    outcome.state = replace(
        state, restart_wanted=False, stop_wanted=True, give_up="", suspicions=()
    )
    if outcome.move(Trigger.STOP, now, f"stopped by {by}"):
        _end_if_live(outcome, state)


def _restart(outcome: Outcome, now: float, by: str) -> None:
    state = outcome.state
    if state.lifecycle not in lifecycle.LIVE | {State.DEAD}:
        _start(outcome, now, by)
        return
    outcome.state = replace(state, restart_wanted=True, give_up="", ledger=Ledger(), suspicions=())
    outcome.move(Trigger.RESTART, now, f"restart asked for by {by}")
    _end_if_live(outcome, state)
