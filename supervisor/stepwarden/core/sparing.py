"""Condemned, and not killed: held up by the governor, or only observed."""

from __future__ import annotations

from dataclasses import replace

from stepwarden.core import sentences
from stepwarden.core.clocks import Cause
from stepwarden.core.event import Kind
from stepwarden.core.evidence import CpuSample
from stepwarden.core.governor import Refusal
from stepwarden.core.lifecycle import Trigger, step
from stepwarden.core.policy import WorkerPolicy
from stepwarden.core.verdict import Judgement, Suspicion
from stepwarden.core.worker import Outcome

OBSERVED = "mode is observe: nothing is signalled"

LEFT_ALONE = "what is left of its tree is left alone, for its mode is observe"

OBSERVE_RULE = "observe"
"""Which rule a SHADOW_DEATH names that the present verdict would have brought."""

Numbers = dict[str, float | str | None]


def held_up(
    outcome: Outcome,
    policy: WorkerPolicy,
    judgement: Judgement,
    sample: CpuSample | None,
    refusal: Refusal,
    now: float,
    numbers: Numbers,
) -> Suspicion:
    """Its death is held up: it gets a further window, and the reason is told."""
    clock = judgement.suspicion.clock
    spared = judgement.suspicion.held_back(sample, policy.window, now)
    why = sentences.ruled(judgement, policy.busy_cpu, now)
    window = sentences.seconds(policy.window)
    text = f"{why}; its death is held up: {refusal.sentence}; judged again in {window}"
    goes_to = step(outcome.state.lifecycle, Trigger.WINDOW_GRANTED)
    outcome.state = replace(outcome.state, lifecycle=goes_to, sentence=text)
    told = {**numbers, "held_up": refusal.why.value, "windows": spared.windows}
    outcome.note(Kind.RETRY, text, clock.cause, clock.subject, **told)
    return spared


def observed(
    outcome: Outcome,
    policy: WorkerPolicy,
    judgement: Judgement,
    sample: CpuSample | None,
    now: float,
    numbers: Numbers,
) -> Suspicion:
    """It would be DEAD now. That is told once for each suspicion, and it is looked at further."""
    before = judgement.suspicion
    clock = before.clock
    spared = replace(before.held_back(sample, policy.window, now), would_be_dead=True)
    if before.would_be_dead:
        return spared
    text = f"would be DEAD: {sentences.ruled(judgement, policy.busy_cpu, now)}; {OBSERVED}"
    outcome.state = replace(outcome.state, sentence=text)
    told = {**numbers, "rule": OBSERVE_RULE, "windows": before.windows}
    outcome.note(Kind.SHADOW_DEATH, text, clock.cause, clock.subject, **told)
    return spared


def rank_missed(outcome: Outcome, rank: str, how: str) -> None:
    """A rank of an observed worker ended without a bye: told once in its life."""
    word = f"missed {rank}"
    if word in outcome.state.warned:
        return
    outcome.state = replace(outcome.state, warned=outcome.state.warned | {word})
    text = f"would be DEAD: {how}; {OBSERVED}"
    outcome.note(Kind.SHADOW_DEATH, text, Cause.RANK_EXIT, rank, rule=OBSERVE_RULE)
