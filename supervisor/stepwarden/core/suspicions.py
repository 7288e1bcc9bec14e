"""The suspicions of one worker: opened by passed deadlines, cleared by ends, judged by windows.

A worker is UNHEALTHY exactly while this set is not empty. Two suspicions are the same when
subject, cause and step number are; a step that ends takes its suspicion with it, and is written
down as a false alarm with its length.
"""

from __future__ import annotations

from dataclasses import replace

from stepwarden.core import sentences
from stepwarden.core.awareness import Awareness
from stepwarden.core.clocks import WORKER, Cause, RunningClock
from stepwarden.core.deadline import elapsed
from stepwarden.core.diagnosing import diagnosed, sample_of, suspected
from stepwarden.core.diagnosis import most_telling
from stepwarden.core.event import STILL_OPEN, Kind
from stepwarden.core.evidence import WorkerEvidence
from stepwarden.core.finding import data_of
from stepwarden.core.governor import Leave, Refusal, always
from stepwarden.core.lifecycle import Trigger, step
from stepwarden.core.policy import WorkerPolicy
from stepwarden.core.sparing import Numbers, held_up, observed
from stepwarden.core.stacks import Place
from stepwarden.core.step_ends import is_open, length_of
from stepwarden.core.verdict import Judgement, Ruling, Suspicion, judge, open_suspicion
from stepwarden.core.worker import Outcome, WorkerState, die

Passed = dict[tuple[str, Cause, int], RunningClock]
"""Clocks whose deadline has passed, by key."""


def weigh(
    outcome: Outcome,
    policy: WorkerPolicy,
    evidence: WorkerEvidence,
    awareness: Awareness,
    passed: Passed,
    now: float,
    leave: Leave = always,
) -> None:
    """Bring the suspicions up to date: clear, judge, open, and recover when none is left.

    `leave`: asked before a condemned worker dies.
    """
    starts = _late_starts(outcome.state.suspicions, awareness, now)
    _clear(outcome, passed, evidence, now)
    if not _judge_open(outcome, policy, evidence, awareness, now, leave):
        _open_new(outcome, policy, evidence, passed, starts, now)
        if not outcome.state.suspicions:
            _recover(outcome, now)
        finding = most_telling(suspicion.finding for suspicion in outcome.state.suspicions)
        if finding != outcome.state.finding:
            outcome.state = replace(outcome.state, finding=finding)


def _late_starts(
    suspicions: tuple[Suspicion, ...], awareness: Awareness, now: float
) -> dict[float, float]:
    """Until when each late start (by its begin) has its first window whole, our pauses included.

    One start is late under several names as its ranks attach one after the other; were each
    given a first window of its own, a start that hangs would outlive its hard cap.
    """
    whole: dict[float, float] = {}
    for suspicion in suspicions:
        if suspicion.clock.cause is Cause.STARTUP:
            until = suspicion.whole_until + awareness.lost(suspicion.opened_at, now)
            began = suspicion.clock.began
            whole[began] = min(until, whole.get(began, until))
    return whole


def _recover(outcome: Outcome, now: float) -> None:
    if outcome.state.ready:
        outcome.move(Trigger.CLEARED, now, "nothing is late any more")
    else:
        text = "nothing is late any more; it is not ready yet"
        outcome.move(Trigger.CLEARED_UNREADY, now, text)


def _clear(
    outcome: Outcome,
    passed: Passed,
    evidence: WorkerEvidence,
    now: float,
) -> None:
    kept: list[Suspicion] = []
    starts = {clock.began for clock in passed.values() if clock.cause is Cause.STARTUP}
    for suspicion in outcome.state.suspicions:
        clock = passed.get(suspicion.clock.key)
        if clock is not None:
            kept.append(replace(suspicion, clock=clock))
            continue
        if suspicion.clock.subject == WORKER and suspicion.clock.began in starts:
            continue  # no false alarm: the same late start, now known by the name of its rank
        outcome.state = replace(outcome.state, false_alarms=outcome.state.false_alarms + 1)
        _note_false_alarm(outcome, suspicion, evidence, now)
    outcome.state = replace(outcome.state, suspicions=tuple(kept))


def _note_false_alarm(
    outcome: Outcome, suspicion: Suspicion, evidence: WorkerEvidence, now: float
) -> None:
    clock = suspicion.clock
    length = _length(clock, evidence)
    text = sentences.false_alarm(clock, length, now)
    still_open = _still_open(clock, evidence)
    outcome.note(
        Kind.FALSE_ALARM,
        sentences.more_time(clock) if still_open else text,
        clock.cause.value,
        clock.subject,
        step=clock.step.number if clock.step else None,
        seconds=elapsed(clock.began, now) if length is None else length,
        budget=clock.budget,
        windows=suspicion.windows,
        rule=clock.rule,
        **({STILL_OPEN: 1} if still_open else {}),
        **({"would_be_dead": 1} if suspicion.would_be_dead else {}),
        **data_of(suspicion.finding),
    )


def _still_open(clock: RunningClock, evidence: WorkerEvidence) -> bool:
    """It got more time (a lease, a reload) and goes on."""
    return clock.step is not None and is_open(evidence.ranks.get(clock.subject), clock.step.number)


def _length(clock: RunningClock, evidence: WorkerEvidence) -> float | None:
    if clock.step is None:
        return None
    return length_of(evidence.ranks.get(clock.subject), clock.step.number)


def _with_stacks(suspicion: Suspicion, evidence: WorkerEvidence) -> Suspicion:
    """The newest that two looks at its stacks came to; of a start those of the whole worker."""
    seen = evidence.stacks.get(suspicion.clock.subject)
    return suspicion if seen is suspicion.stacks else replace(suspicion, stacks=seen)


def _seen(suspicion: Suspicion) -> str:
    stacks = suspicion.stacks
    if stacks is None or stacks.place is Place.UNKNOWN:
        return ""
    return f"; {stacks.sentence}"


def _stack_data(suspicion: Suspicion) -> dict[str, str | None]:
    stacks = suspicion.stacks
    if stacks is None:
        return {}
    return {"stacks": stacks.place.value, "stacks_sentence": stacks.sentence}


def _judge_open(
    outcome: Outcome,
    policy: WorkerPolicy,
    evidence: WorkerEvidence,
    awareness: Awareness,
    now: float,
    leave: Leave,
) -> bool:
    judgements = [
        _judged(_with_stacks(suspicion, evidence), policy, evidence, awareness, now)
        for suspicion in outcome.state.suspicions
    ]
    dead = [judgement for judgement in judgements if judgement.ruling is Ruling.DEAD]
    refusal = leave(any(one.capped for one in dead), now) if dead and not policy.observe else None
    if dead and refusal is None and not policy.observe:
        _condemn(outcome, policy, evidence, dead[0], now)
        return True
    kept = tuple(
        _spared(outcome, policy, evidence, judgement, refusal, now)
        if judgement.ruling is Ruling.DEAD
        else judgement.suspicion
        for judgement in judgements
    )
    outcome.state = replace(outcome.state, suspicions=kept)
    for judgement in judgements:
        if judgement.ruling is Ruling.UNHEALTHY_RETRY and not judgement.suspicion.would_be_dead:
            _grant(outcome, policy, judgement, now)
    return False


def _spared(
    outcome: Outcome,
    policy: WorkerPolicy,
    evidence: WorkerEvidence,
    judgement: Judgement,
    refusal: Refusal | None,
    now: float,
) -> Suspicion:
    clock = judgement.suspicion.clock
    sample = sample_of(evidence, clock.subject)
    numbers = _told(judgement, now)
    if refusal is None:
        return observed(outcome, policy, judgement, sample, now, numbers)
    return held_up(outcome, policy, judgement, sample, refusal, now, numbers)


def _judged(
    suspicion: Suspicion,
    policy: WorkerPolicy,
    evidence: WorkerEvidence,
    awareness: Awareness,
    now: float,
) -> Judgement:
    judgement = judge(
        suspicion,
        sample_of(evidence, suspicion.clock.subject),
        now,
        window=policy.window,
        busy_cpu=policy.busy_cpu,
        lost=awareness.lost(suspicion.opened_at, now),
        longer=awareness.longer(policy.window),
        starved=evidence.starved.lost(suspicion.opened_at, now),
    )
    return diagnosed(judgement, suspicion, policy, evidence, awareness, now)


def well_until(state: WorkerState, evidence: WorkerEvidence, now: float) -> float:
    """When this life was last known to be well: before anything that is late, or open, began.

    Time spent in a hang is not stable uptime. A hang may last longer than `stable`, and would
    otherwise forgive itself and be restarted for ever.
    """
    late = [suspicion.clock.began for suspicion in state.suspicions]
    steps = [rank.oldest.begin for rank in evidence.ranks.values() if rank.oldest is not None]
    return min([now, *late, *steps])


def _condemn(
    outcome: Outcome,
    policy: WorkerPolicy,
    evidence: WorkerEvidence,
    judgement: Judgement,
    now: float,
) -> None:
    clock = judgement.suspicion.clock
    text = sentences.ruled(judgement, policy.busy_cpu, now) + _seen(judgement.suspicion)
    outcome.state = replace(outcome.state, finding=judgement.suspicion.finding)
    die(
        outcome,
        Trigger.CONDEMNED,
        policy,
        now,
        text,
        clock.cause,
        clock.subject,
        well_until=well_until(outcome.state, evidence, now),
        then="ending its process tree",
        **_told(judgement, now),
    )


def _grant(outcome: Outcome, policy: WorkerPolicy, judgement: Judgement, now: float) -> None:
    clock = judgement.suspicion.clock
    text = sentences.ruled(judgement, policy.busy_cpu, now) + _seen(judgement.suspicion)
    goes_to = step(outcome.state.lifecycle, Trigger.WINDOW_GRANTED)
    outcome.state = replace(outcome.state, lifecycle=goes_to, sentence=text)
    outcome.note(
        Kind.RETRY,
        text,
        clock.cause,
        clock.subject,
        **_told(judgement, now),
    )


def _open_new(
    outcome: Outcome,
    policy: WorkerPolicy,
    evidence: WorkerEvidence,
    passed: Passed,
    starts: dict[float, float],
    now: float,
) -> None:
    known = {suspicion.clock.key for suspicion in outcome.state.suspicions}
    for key, clock in passed.items():
        if key in known:
            continue
        sample = sample_of(evidence, clock.subject)
        had = starts.get(clock.began) if clock.cause is Cause.STARTUP else None
        opened = open_suspicion(clock, policy.window, sample, now, had)
        opened = suspected(opened, policy, evidence, now)
        outcome.state = replace(outcome.state, suspicions=(*outcome.state.suspicions, opened))
        window = elapsed(now, opened.window_ends)
        text = sentences.suspected(clock, window, now, opened.finding)
        numbers = _numbers(clock, now) | data_of(opened.finding)
        if not outcome.move(
            Trigger.DEADLINE_PASSED, now, text, clock.cause, clock.subject, **numbers
        ):
            outcome.note(Kind.SUSPICION, text, clock.cause, clock.subject, **numbers)


def _told(judgement: Judgement, now: float) -> Numbers:
    """What the event of a verdict carries, whatever becomes of it."""
    suspicion, measurement = judgement.suspicion, judgement.measurement
    return {
        "ruling": judgement.ruling.value,
        "cpu_percent": None if measurement is None else measurement.percent,
        "windows": suspicion.windows,
        "longer": judgement.longer,
        **_stack_data(suspicion),
        **_numbers(suspicion.clock, now),
        **data_of(suspicion.finding),
    }


def _numbers(clock: RunningClock, now: float) -> Numbers:
    step = clock.step
    return {
        "step": step.number if step else None,
        "num_seqs": step.num_seqs if step else None,
        "num_tokens": step.num_tokens if step else None,
        "later_ended": clock.later_ended if step else None,
        "age": elapsed(clock.began, now),
        "budget": clock.budget,
        "hard_cap": clock.hard_cap,
        "arithmetic": clock.arithmetic,
        "late_by": elapsed(clock.deadline.at or now, now),
        "rule": clock.rule,
        "starved": clock.starved,
    }
