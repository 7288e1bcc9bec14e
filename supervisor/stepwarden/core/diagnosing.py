"""Puts the case of each suspicion together and writes down what is found."""

from __future__ import annotations

from dataclasses import replace

from stepwarden.core.awareness import Awareness
from stepwarden.core.case import Case
from stepwarden.core.clocks import WORKER, live_ranks
from stepwarden.core.deadline import elapsed
from stepwarden.core.diagnosis import diagnose
from stepwarden.core.evidence import CpuSample, RankEvidence, WorkerEvidence
from stepwarden.core.facts import RankFacts
from stepwarden.core.moves import LEAST_SECONDS, moves_between
from stepwarden.core.policy import WorkerPolicy
from stepwarden.core.stacks import NOTHING_SEEN
from stepwarden.core.verdict import Judgement, Measurement, Ruling, Suspicion, measure

STALE_SECONDS = 15.0
"""Facts that are older than this speak for nobody; a reading may hang, or never have come."""


def diagnosed(
    judgement: Judgement,
    asked: Suspicion,
    policy: WorkerPolicy,
    evidence: WorkerEvidence,
    awareness: Awareness,
    now: float,
) -> Judgement:
    """The judgement of the suspicion `asked`, with why it is late.

    A window that is granted anew begins with the facts of now.
    """
    lost = awareness.lost(asked.opened_at, now)
    measurement = judgement.measurement
    if measurement is None:
        measurement = _so_far(asked, policy, evidence, lost)
    finding = diagnose(_case(asked, policy, evidence, measurement, lost, now))
    suspicion = replace(judgement.suspicion, finding=finding)
    if judgement.ruling is Ruling.UNHEALTHY_RETRY:
        suspicion = replace(suspicion, facts=facts_of(evidence, suspicion.clock.subject)[1])
    return replace(judgement, suspicion=suspicion)


def suspected(
    opened: Suspicion, policy: WorkerPolicy, evidence: WorkerEvidence, now: float
) -> Suspicion:
    """A suspicion that has just been opened, with what can be said of it by now."""
    measurement = _so_far(opened, policy, evidence, 0.0)
    finding = diagnose(_case(opened, policy, evidence, measurement, 0.0, now))
    return replace(opened, facts=facts_of(evidence, opened.clock.subject)[1], finding=finding)


def sample_of(evidence: WorkerEvidence, subject: str) -> CpuSample | None:
    """The newest CPU sample of a subject."""
    if subject == WORKER:
        return evidence.tree
    rank = evidence.ranks.get(subject)
    return rank.cpu if rank is not None else None


def facts_of(evidence: WorkerEvidence, subject: str) -> tuple[RankFacts | None, RankFacts | None]:
    """The two newest readings of a subject, the older one first."""
    holder: WorkerEvidence | RankEvidence | None = evidence
    if subject != WORKER:
        holder = evidence.ranks.get(subject)
    return (None, None) if holder is None else (holder.facts_before, holder.facts)


def _so_far(
    suspicion: Suspicion, policy: WorkerPolicy, evidence: WorkerEvidence, lost: float
) -> Measurement:
    """Its CPU since the window began; unknown until enough of it is over to tell."""
    sample = sample_of(evidence, suspicion.clock.subject)
    return measure(suspicion.baseline, sample, policy.busy_cpu, lost=lost, at_least=LEAST_SECONDS)


def _case(
    suspicion: Suspicion,
    policy: WorkerPolicy,
    evidence: WorkerEvidence,
    measurement: Measurement,
    lost: float,
    now: float,
) -> Case:
    subject = suspicion.clock.subject
    before, facts = facts_of(evidence, subject)
    if facts is not None and elapsed(facts.at, now) > STALE_SECONDS:
        facts = None
    opened = suspicion.facts
    if opened is not None and facts is not None and elapsed(opened.at, facts.at) >= LEAST_SECONDS:
        before = opened
    return Case(
        clock=suspicion.clock,
        now=now,
        since=suspicion.opened_at,
        rank=evidence.ranks.get(subject),
        peers=live_ranks(evidence),
        facts=facts,
        moves=moves_between(before, facts),
        measurement=measurement,
        busy_cpu=policy.busy_cpu,
        lost=lost,
        stacks=evidence.stacks.get(subject, NOTHING_SEEN).place,
    )
