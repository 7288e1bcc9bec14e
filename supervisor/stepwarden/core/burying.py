"""What follows when a worker's tree has been ended: another life, a rest, or the operator."""

from __future__ import annotations

from dataclasses import replace

from stepwarden.core import lifecycle, restarts, sentences
from stepwarden.core.calls import recorded
from stepwarden.core.deadline import Deadline
from stepwarden.core.event import Kind
from stepwarden.core.evidence import ProcessId
from stepwarden.core.finding import Diagnosis, Finding, data_of
from stepwarden.core.lifecycle import State, Trigger
from stepwarden.core.policy import WorkerPolicy
from stepwarden.core.restarts import Ledger
from stepwarden.core.worker import Outcome, WorkerState, begin_life

ALL_GONE = "every process is gone"

UNKILLABLE = "unkillable"
"""The cause of FAILED while something of the old tree is left."""


@recorded("policy", "leftovers", "now", "spread", "gone", "group")
def buried(
    state: WorkerState,
    policy: WorkerPolicy,
    leftovers: frozenset[ProcessId],
    now: float,
    spread: float,
    gone: str = ALL_GONE,
    group: Ledger | None = None,
) -> Outcome:
    """The tree of the present life has been ended, all but `leftovers`.

    `spread` in -1..1 is the luck of the draw for the restart delay. A report for a worker whose
    tree is not being ended, and of which nothing was left, is an old one and changes nothing.
    `gone`: what has become of it, where that is not that all of it is gone. `group`: the deaths
    that count against its limit and for its delay, where those of its group do.
    """
    if state.lifecycle not in lifecycle.ENDING and not state.leftovers:
        return Outcome(state)
    outcome = Outcome(replace(state, leftovers=leftovers))
    if leftovers:
        _stuck(outcome, policy, leftovers, now)
    elif state.lifecycle is State.STOPPING and state.give_up:
        outcome.move(Trigger.ENDED_GIVEN_UP, now, f"{state.give_up}; {gone}")
    elif state.lifecycle is State.STOPPING and state.restart_wanted:
        begin_life(outcome, Trigger.TURNED_OVER, now, f"{gone}; started again")
    elif state.lifecycle is State.STOPPING:
        outcome.move(Trigger.ENDED, now, f"{state.sentence}; {gone}", state.cause)
    elif state.lifecycle is State.DEAD:
        _after_burial(outcome, policy, now, spread, gone, group)
    elif state.lifecycle is State.FAILED:
        _freed(outcome, policy, now, spread, group)
    return outcome


def spares(state: WorkerState, policy: WorkerPolicy) -> bool:
    """Whether what is left of its tree is left alone: it is observed, and nobody said to end it."""
    told = state.stop_wanted or state.restart_wanted or bool(state.give_up)
    return policy.observe and not told


def _stuck(
    outcome: Outcome, policy: WorkerPolicy, leftovers: frozenset[ProcessId], now: float
) -> None:
    pids = ", ".join(str(process.pid) for process in sorted(leftovers))
    if spares(outcome.state, policy):
        text = f"leftover pids {pids} are left alone, for its mode is observe"
    else:
        text = f"leftover pids {pids} do not end, not even by KILL"
        finding = Finding(Diagnosis.UNKILLABLE, text)
        outcome.state = replace(outcome.state, finding=finding)
    outcome.move(
        Trigger.UNKILLABLE,
        now,
        f"{text}; nothing is started beside them",
        cause=UNKILLABLE,
        leftovers=pids,
        **data_of(outcome.state.finding),
    )


def _freed(
    outcome: Outcome, policy: WorkerPolicy, now: float, spread: float, group: Ledger | None
) -> None:
    """What could not be killed is gone at last: do what was to be done then."""
    state = outcome.state
    if state.stop_wanted or (rests_after(policy, state.clean_exit) and not state.restart_wanted):
        text = "every process is gone at last; not started again"
        outcome.move(Trigger.FREED_UNWANTED, now, text, state.cause)
    elif state.give_up:
        text = f"{state.give_up}; every process is gone at last"
        outcome.state = replace(state, sentence=text)
        outcome.note(Kind.BURIAL, text)
    elif _awaits_without_limit(policy):
        _await_platform(outcome, policy, now, Trigger.FREED)
    elif restarts.spent(state.ledger, policy.restart, now):
        # It stays FAILED; what changes is the reason, and that the operator may start it.
        text = _gave_up(state, policy, now)
        outcome.state = replace(state, sentence=text)
        outcome.note(Kind.BURIAL, f"every process is gone at last; {text}")
    elif policy.attached:
        _await_platform(outcome, policy, now, Trigger.FREED)
    else:
        _delay_restart(outcome, policy, now, spread, group, Trigger.FREED)


def _after_burial(
    outcome: Outcome,
    policy: WorkerPolicy,
    now: float,
    spread: float,
    gone: str,
    group: Ledger | None,
) -> None:
    state = outcome.state
    if state.give_up:
        text = f"{state.give_up}{_last(state)}"
        outcome.move(Trigger.BURIED_SPENT, now, text, state.cause)
    elif _awaits_without_limit(policy):
        _await_platform(outcome, policy, now, Trigger.BURIED, gone)
    elif rests_after(policy, state.clean_exit):
        text = f"{gone}; not started again, restart.on is {policy.restart.on}"
        text += _last(state)
        outcome.move(Trigger.BURIED_UNWANTED, now, text, state.cause)
    elif restarts.spent(state.ledger, policy.restart, now):
        text = _gave_up(state, policy, now)
        outcome.move(Trigger.BURIED_SPENT, now, text, state.cause)
    elif policy.attached:
        _await_platform(outcome, policy, now, Trigger.BURIED, gone)
    else:
        _delay_restart(outcome, policy, now, spread, group, Trigger.BURIED)


def rests_after(policy: WorkerPolicy, clean_exit: bool) -> bool:
    """Whether a death is the end of it by its policy; `clean_exit`: its main ended with code 0."""
    wanted = restarts.wants_restart(policy.restart, clean_exit)
    return not wanted and not _awaits_without_limit(policy)


def _awaits_without_limit(policy: WorkerPolicy) -> bool:
    """With `restart.on: never` it is the platform that counts how often."""
    return policy.attached and policy.restart.on == "never"


def _await_platform(
    outcome: Outcome, policy: WorkerPolicy, now: float, trigger: Trigger, gone: str = ALL_GONE
) -> None:
    """Something else starts it again; its next life begins with the wait for that."""
    wait = sentences.seconds(policy.expect_external)
    text = f"{gone}; whoever started it has {wait} to start it again"
    text += _last(outcome.state)
    outcome.state = replace(outcome.state, restart_at=Deadline(now))
    outcome.move(trigger, now, text, outcome.state.cause)


def _gave_up(state: WorkerState, policy: WorkerPolicy, now: float) -> str:
    used = state.ledger.used(policy.restart, now)
    return f"gave up after {used} deaths (restart.limit {policy.restart.limit}){_last(state)}"


def _last(state: WorkerState) -> str:
    return f"; last: {state.last_death}" if state.last_death else ""


def _delay_restart(
    outcome: Outcome,
    policy: WorkerPolicy,
    now: float,
    spread: float,
    group: Ledger | None,
    trigger: Trigger,
) -> None:
    state = outcome.state
    ledger = state.ledger if group is None else group
    counted = ledger.used(policy.restart, now)
    wait = restarts.delay(ledger, policy.restart, spread)
    outcome.state = replace(state, restart_at=Deadline.after(now, wait))
    text = (
        f"every process is gone; restart delay {sentences.seconds(wait)},"
        f" {counted} of {policy.restart.limit} deaths used{_last(state)}"
    )
    outcome.move(trigger, now, text, state.cause, delay=wait)
