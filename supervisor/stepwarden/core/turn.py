"""One turn of the loop for a worker that lives: is it gone, is it ready, is anything late?"""

from __future__ import annotations

from dataclasses import replace

from stepwarden.core import lifecycle, sentences
from stepwarden.core.adopted import adopted
from stepwarden.core.awareness import Awareness
from stepwarden.core.budget import Rows
from stepwarden.core.calls import CALLS
from stepwarden.core.clocks import (
    Cause,
    RunningClock,
    Scene,
    last_sign,
    live_ranks,
)
from stepwarden.core.deadline import Deadline, earliest, elapsed
from stepwarden.core.ended import end_of_main, end_of_rank
from stepwarden.core.event import Kind
from stepwarden.core.evidence import Exit, RankEvidence, WorkerEvidence
from stepwarden.core.finding import Diagnosis, Finding
from stepwarden.core.former import clocks_with, still_needed
from stepwarden.core.governor import Asking, Leave, Refused, always
from stepwarden.core.grounds import silent_channel
from stepwarden.core.left_open import warn_left_open
from stepwarden.core.lifecycle import State, Trigger
from stepwarden.core.policy import WorkerPolicy
from stepwarden.core.readiness import came_up, ready_now, ready_sentence
from stepwarden.core.shadows import weigh_shadows
from stepwarden.core.sparing import LEFT_ALONE, rank_missed
from stepwarden.core.suspicions import weigh, well_until
from stepwarden.core.unbegun import begun, failed_in_vain, held
from stepwarden.core.worker import Call, Outcome, WorkerState, begin_life, die

Clocks = tuple[RunningClock, ...]

HEARTBEAT_SECONDS = 1.0
"""The loop turns at least this often, whatever it waits for."""

SHORTEST_REST = 0.05
"""For the sake of tiny budgets the loop turns no more often than this."""


def clocks_of(
    state: WorkerState,
    policy: WorkerPolicy,
    evidence: WorkerEvidence,
    awareness: Awareness,
    now: float,
) -> Clocks:
    """Every clock that runs for this worker; none for one that is not live."""
    if state.lifecycle not in lifecycle.LIVE or state.lifecycle is State.ADOPTED:
        return ()
    up = came_up(state, evidence)
    ready = state.ready or ready_now(policy, evidence, up)
    scene = Scene(policy, evidence, state.spawned_at, ready, up, awareness, now)
    return clocks_with(scene, state.former)


def late_subjects(clocks: tuple[RunningClock, ...], now: float) -> frozenset[str]:
    """Whose CPU must be sampled before this turn can judge: the subjects of passed deadlines."""
    return frozenset(clock.subject for clock in clocks if clock.deadline.passed(now))


def next_wake(
    state: WorkerState,
    policy: WorkerPolicy,
    clocks: tuple[RunningClock, ...],
    awareness: Awareness,
    now: float,
) -> Deadline:
    """When this worker needs the loop next: not before `now`, and at most a second after it.

    What was due in the past (a window that a new policy shortened) is due now: an instant that lies
    behind would be taken for the beginning of a pause of ours, and excused on every clock.

    A step that begins right after this turn could be late one smallest budget from now, so a
    live worker with budgets below a second is looked at that often, and no other is.
    """
    if state.lifecycle is State.RESTARTING:
        return earliest(state.restart_at, Deadline.after(now, HEARTBEAT_SECONDS)).not_before(now)
    if state.lifecycle not in lifecycle.LIVE:
        return Deadline.after(now, HEARTBEAT_SECONDS)
    rest = max(SHORTEST_REST, min(HEARTBEAT_SECONDS, policy.step.smallest()))
    ahead = [c.deadline for c in clocks if not c.deadline.passed(now)]
    longer = awareness.longer(policy.window)
    windows = [s.due(awareness.lost(s.opened_at, now), longer) for s in state.suspicions]
    return earliest(Deadline.after(now, rest), *ahead, *windows).not_before(now)


def advance(
    state: WorkerState,
    policy: WorkerPolicy,
    evidence: WorkerEvidence,
    awareness: Awareness,
    now: float,
    leave: Leave = always,
    clocks: Clocks | None = None,
) -> Outcome:
    """One turn for one worker. `leave`: asked before it dies by a verdict.

    `clocks`: what `clocks_of` said of just these; None: not asked.
    """
    asking = Asking(leave)
    outcome = Outcome(state)
    if state.lifecycle is State.RESTARTING and state.restart_at.passed(now):
        begin_life(outcome, Trigger.DELAY_OVER, now, "started again after its delay")
    elif state.lifecycle is State.FAILED and policy.attached:
        failed_in_vain(outcome, policy, evidence, now)
    elif state.lifecycle in lifecycle.LIVE and not _gone(outcome, policy, evidence, now):
        _living(outcome, policy, evidence, awareness, now, asking, clocks)
    outcome.call = Call(
        "advance",
        state,
        {"policy": policy, "evidence": evidence, "awareness": awareness, "now": now}
        | ({} if asking.refusal is None else {"leave": Refused(asking.refusal)}),
    )
    return outcome


CALLS["advance"] = advance


def _living(
    outcome: Outcome,
    policy: WorkerPolicy,
    evidence: WorkerEvidence,
    awareness: Awareness,
    now: float,
    leave: Leave,
    clocks: Clocks | None,
) -> None:
    before = outcome.state
    if outcome.state.lifecycle is State.ADOPTED:
        adopted(outcome, policy, evidence, now)
    elif evidence.shut:
        outcome.move(Trigger.NOT_LET_IN, now, evidence.shut, Cause.GATE)
    elif evidence.held:
        held(outcome, policy, evidence, awareness, now)
    else:
        begun(outcome, evidence)
        if clocks is None or outcome.state is not before:
            clocks = clocks_of(outcome.state, policy, evidence, awareness, now)
        _live(outcome, policy, evidence, awareness, now, leave, clocks)


def _gone(outcome: Outcome, policy: WorkerPolicy, evidence: WorkerEvidence, now: float) -> bool:
    well = well_until(outcome.state, evidence, now)
    if evidence.spawn_error is not None:
        text = f"could not be started: {evidence.spawn_error}"
        outcome.state = replace(outcome.state, last_exit=text)
        found = _found(outcome, Diagnosis.EXITED, text)
        die(outcome, Trigger.GONE, policy, now, text, Cause.SPAWN, well_until=now, then="", **found)
        return True
    if evidence.exit is not None:
        _main_ended(outcome, policy, evidence, evidence.exit, well, now)
        return True
    for name, rank in evidence.ranks.items():
        if rank.lost and not rank.bye:
            if policy.observe:
                rank_missed(outcome, name, _how_rank_ended(name, rank))
                continue
            _rank_ended(outcome, policy, evidence, name, well, now)
            return True
    return False


def _main_ended(
    outcome: Outcome,
    policy: WorkerPolicy,
    evidence: WorkerEvidence,
    exit_: Exit,
    well: float,
    now: float,
) -> None:
    how = sentences.describe_exit(exit_)
    outcome.state = replace(outcome.state, last_exit=how, clean_exit=exit_.code == 0)
    text = f"its main process {sentences.ended(exit_)}"
    then = LEFT_ALONE if policy.observe else "ending what is left of its tree"
    found = _found(outcome, *end_of_main(exit_, text, evidence.oom_kills))
    die(
        outcome,
        Trigger.GONE,
        policy,
        now,
        text,
        Cause.EXIT,
        well_until=well,
        then=then,
        exit=how,
        **found,
    )


def _found(outcome: Outcome, diagnosis: Diagnosis, sentence: str, rank: str = "") -> dict[str, str]:
    """Note why it has ended; what the event carries of it."""
    finding = Finding(diagnosis, sentence, rank)
    outcome.state = replace(outcome.state, finding=finding)
    return finding.data


def _rank_ended(
    outcome: Outcome,
    policy: WorkerPolicy,
    evidence: WorkerEvidence,
    name: str,
    well: float,
    now: float,
) -> None:
    rank = evidence.ranks[name]
    pid = rank.process.pid if rank.process else None
    text = _how_rank_ended(name, rank)
    then = "ending the whole tree"
    die(
        outcome,
        Trigger.GONE,
        policy,
        now,
        text,
        Cause.RANK_EXIT,
        name,
        well_until=well,
        then=then,
        pid=pid,
        **_found(outcome, *end_of_rank(text, evidence.oom_kills), name),
    )


def _how_rank_ended(name: str, rank: RankEvidence) -> str:
    process = f"process {rank.process.pid}" if rank.process else "the process"
    return f"{process} of {sentences.rank_name(name)} ended without saying bye"


def _live(
    outcome: Outcome,
    policy: WorkerPolicy,
    evidence: WorkerEvidence,
    awareness: Awareness,
    now: float,
    leave: Leave,
    clocks: Clocks,
) -> None:
    if outcome.state.former:
        former = still_needed(outcome.state.former, clocks)
        outcome.state = replace(outcome.state, former=former)
    outcome.state = replace(outcome.state, came_up=came_up(outcome.state, evidence))
    _note_silence(outcome, policy, evidence, awareness, now)
    _warn_rows(outcome, policy, clocks)
    warn_left_open(outcome, clocks, now)
    if not outcome.state.ready and ready_now(policy, evidence, outcome.state.came_up):
        outcome.state = replace(outcome.state, ready_at=now)
        outcome.move(Trigger.READY, now, ready_sentence(policy, evidence))
    passed = {clock.key: clock for clock in clocks if clock.deadline.passed(now)}
    weigh(outcome, policy, evidence, awareness, passed, now, leave)
    if outcome.state.lifecycle in lifecycle.LIVE:
        weigh_shadows(outcome, policy, evidence, awareness, clocks, now)


def _note_silence(
    outcome: Outcome,
    policy: WorkerPolicy,
    evidence: WorkerEvidence,
    awareness: Awareness,
    now: float,
) -> None:
    for name, rank in live_ranks(evidence).items():
        heard = rank.attached_at if rank.beat_at is None else rank.beat_at
        allowed = policy.heartbeat_timeout + awareness.lost(heard, now)
        alive = elapsed(last_sign(rank), now) < policy.heartbeat_timeout
        silent = alive and Deadline.after(heard, allowed).passed(now)
        if silent and name not in outcome.state.silent:
            outcome.state = replace(outcome.state, silent=outcome.state.silent | {name})
            found = Finding(Diagnosis.AGENT_SILENT, silent_channel(name, rank, now), name)
            outcome.note(Kind.AGENT_SILENT, found.sentence, rank=name, **found.data)
        elif not silent and name in outcome.state.silent and elapsed(heard, now) < allowed:
            outcome.state = replace(outcome.state, silent=outcome.state.silent - {name})
            who = sentences.rank_name(name)
            outcome.note(Kind.AGENT_HEARD, f"beats of {who} arrive again", rank=name)


def _warn_rows(outcome: Outcome, policy: WorkerPolicy, clocks: tuple[RunningClock, ...]) -> None:
    for clock in clocks:
        if clock.step is None:
            continue
        seqs = clock.step.num_seqs
        if (seqs is None or seqs < 1) and "unknown" not in outcome.state.warned:
            word = "unknown"
            text = f"a step with an unknown batch; its budget is that of {policy.max_num_seqs} seqs"
        elif seqs is not None and _beyond(policy, seqs) and "beyond" not in outcome.state.warned:
            word, text = "beyond", f"a step of {seqs} seqs: {clock.arithmetic}"
        else:
            continue
        outcome.state = replace(outcome.state, warned=outcome.state.warned | {word})
        outcome.note(Kind.OVER_ROWS, text, rank=clock.subject)


def _beyond(policy: WorkerPolicy, seqs: int) -> bool:
    return isinstance(policy.step, Rows) and seqs > policy.step.rows[-1][0]
