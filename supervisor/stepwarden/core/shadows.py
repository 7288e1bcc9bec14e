"""`learn: observe`: the learned rule judges beside the YAML, and nothing comes of it but events.

It goes through the same suspicion, windows and verdicts as a rule in force, so that what is noted
is what would have happened. Whoever gathers evidence follows the events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from stepwarden.core import sentences
from stepwarden.core.awareness import Awareness
from stepwarden.core.clocks import RunningClock, as_learned, with_starved
from stepwarden.core.deadline import elapsed
from stepwarden.core.event import Kind
from stepwarden.core.evidence import WorkerEvidence
from stepwarden.core.policy import LEARN_OBSERVE, WorkerPolicy
from stepwarden.core.shadow import Shadow
from stepwarden.core.step_ends import is_open, length_of
from stepwarden.core.verdict import Judgement, Ruling, judge, open_suspicion
from stepwarden.core.worker import Outcome

Found = tuple[RunningClock, RunningClock]
"""The clock of one step as the YAML has it, and as the learned rule would."""

SUSPECTED, QUIET = "suspected", "quiet"
"""What the YAML did meanwhile: it held the step for late too, or not yet."""


def shadow_subjects(
    policy: WorkerPolicy, evidence: WorkerEvidence, clocks: Iterable[RunningClock], now: float
) -> frozenset[str]:
    """Whose CPU must be sampled for this rule: ranks whose learned deadline has passed."""
    return frozenset(learned.subject for _, learned in _passed(policy, evidence, clocks, now))


def weigh_shadows(
    outcome: Outcome,
    policy: WorkerPolicy,
    evidence: WorkerEvidence,
    awareness: Awareness,
    clocks: Iterable[RunningClock],
    now: float,
) -> None:
    """Bring the shadows up to date: clear, judge, open."""
    found = {
        learned.key: (yaml, learned) for yaml, learned in _passed(policy, evidence, clocks, now)
    }
    if not found and not outcome.state.shadows:
        return
    shadows: list[Shadow] = []
    for shadow in outcome.state.shadows:
        pair = found.pop(shadow.suspicion.key, None)
        if pair is None:
            _clear(outcome, policy, evidence, shadow, now)
        else:
            timed = replace(shadow, suspicion=replace(shadow.suspicion, clock=pair[1]))
            shadows.append(_judged(outcome, policy, evidence, awareness, timed, now))
    shadows += [_open(outcome, policy, evidence, pair, now) for pair in found.values()]
    outcome.state = replace(outcome.state, shadows=tuple(shadows))


def _passed(
    policy: WorkerPolicy, evidence: WorkerEvidence, clocks: Iterable[RunningClock], now: float
) -> Iterator[Found]:
    if policy.learn != LEARN_OBSERVE:
        return
    for clock in clocks:
        # Nothing learned is below the floor: most steps are not even looked at.
        if clock.step is None or elapsed(clock.began, now) < policy.learn_floor:
            continue
        rank = evidence.ranks.get(clock.subject)
        if rank is None or rank.usual is None or rank.usual.guess(1) is None:
            continue
        learned = with_starved(as_learned(clock, policy, rank.usual), evidence.starved, now)
        if learned.deadline.passed(now):
            yield clock, learned


def _open(
    outcome: Outcome, policy: WorkerPolicy, evidence: WorkerEvidence, pair: Found, now: float
) -> Shadow:
    yaml, clock = pair
    suspicion = open_suspicion(clock, policy.window, evidence.ranks[clock.subject].cpu, now)
    shadow = Shadow(suspicion, yaml.budget)
    text = f"{sentences.late(clock, now)}; learn: on would have raised an alarm"
    _note(outcome, Kind.SHADOW_ALARM, text, shadow, now)
    return shadow


def _judged(
    outcome: Outcome,
    policy: WorkerPolicy,
    evidence: WorkerEvidence,
    awareness: Awareness,
    shadow: Shadow,
    now: float,
) -> Shadow:
    if shadow.dead:
        return shadow
    suspicion = shadow.suspicion
    judgement = judge(
        suspicion,
        evidence.ranks[suspicion.clock.subject].cpu,
        now,
        window=policy.window,
        busy_cpu=policy.busy_cpu,
        lost=awareness.lost(suspicion.opened_at, now),
    )
    if judgement.ruling is Ruling.DEAD:
        _note_death(outcome, policy, shadow, judgement, now)
    return replace(shadow, suspicion=judgement.suspicion, dead=judgement.ruling is Ruling.DEAD)


def _note_death(
    outcome: Outcome, policy: WorkerPolicy, shadow: Shadow, judgement: Judgement, now: float
) -> None:
    text = f"{sentences.ruled(judgement, policy.busy_cpu, now)}; learn: on would have ended it"
    percent = judgement.measurement.percent if judgement.measurement else None
    how = "busy" if judgement.capped else "idle"
    _note(outcome, Kind.SHADOW_DEATH, text, shadow, now, cpu_percent=percent, how=how)


def _clear(
    outcome: Outcome,
    policy: WorkerPolicy,
    evidence: WorkerEvidence,
    shadow: Shadow,
    now: float,
) -> None:
    """Note how it came out, where its step has ended."""
    clock = shadow.suspicion.clock
    rank = evidence.ranks.get(clock.subject)
    step = clock.step
    if step is None or rank is None or is_open(rank, step.number):
        return
    if policy.learn == LEARN_OBSERVE:
        length = length_of(rank, step.number)
        seconds = elapsed(clock.began, now) if length is None else length
        text = sentences.false_alarm(clock, length, now).removeprefix("false alarm: ")
        _note(
            outcome,
            Kind.SHADOW_CLEARED,
            f"{text}; it was no hang",
            shadow,
            now,
            seconds=seconds,
            over=elapsed(clock.budget, seconds),
            died=int(shadow.dead),
        )


def _note(
    outcome: Outcome,
    kind: Kind,
    text: str,
    shadow: Shadow,
    now: float,
    **more: float | str | None,
) -> None:
    clock = shadow.suspicion.clock
    step = clock.step
    real = {suspicion.key for suspicion in outcome.state.suspicions}
    data: dict[str, float | str | None] = {
        "rule": clock.rule,
        "step": step.number if step else None,
        "num_seqs": step.num_seqs if step else None,
        "num_tokens": step.num_tokens if step else None,
        "seconds": elapsed(clock.began, now),
        "budget": clock.budget,
        "hard_cap": clock.hard_cap,
        "arithmetic": clock.arithmetic,
        "yaml_budget": shadow.yaml_budget,
        "yaml": SUSPECTED if clock.key in real else QUIET,
    }
    outcome.note(kind, text, clock.cause, clock.subject, **{**data, **more})
