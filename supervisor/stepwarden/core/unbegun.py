"""A life whose process has not been started yet: it waits for others, a gate, or its platform."""

from __future__ import annotations

from dataclasses import replace

from stepwarden.core import sentences
from stepwarden.core.awareness import Awareness
from stepwarden.core.clocks import Cause
from stepwarden.core.deadline import Deadline
from stepwarden.core.event import Kind
from stepwarden.core.evidence import WorkerEvidence
from stepwarden.core.former import longest_wait
from stepwarden.core.lifecycle import Trigger
from stepwarden.core.policy import WorkerPolicy
from stepwarden.core.readiness import runs
from stepwarden.core.worker import Outcome


def held(
    outcome: Outcome,
    policy: WorkerPolicy,
    evidence: WorkerEvidence,
    awareness: Awareness,
    now: float,
) -> None:
    """Nothing has been started yet: say once what it waits for; a platform has its limit."""
    if outcome.state.held != evidence.held:
        outcome.state = replace(outcome.state, held=evidence.held, sentence=evidence.held)
        outcome.note(Kind.HELD, evidence.held)
    if not policy.attached:
        return
    began = outcome.state.spawned_at
    wait = longest_wait(policy, outcome.state.former, began)
    if Deadline.after(began, wait + awareness.lost(began, now)).passed(now):
        limit = sentences.seconds(wait)
        text = f"no agent of it came within {limit} (expect_external); the platform has not"
        text += " started it, or it cannot reach us"
        outcome.move(Trigger.NOT_BACK, now, text, Cause.PLATFORM)


def failed_in_vain(
    outcome: Outcome, policy: WorkerPolicy, evidence: WorkerEvidence, now: float
) -> None:
    """The platform may start it later than it should; it is watched all the same."""
    if outcome.state.cause == Cause.PLATFORM and runs(policy, evidence):
        outcome.state = replace(outcome.state, spawned_at=now, held="")
        outcome.move(Trigger.CAME_BACK, now, "its agent is there at last")


def begun(outcome: Outcome, evidence: WorkerEvidence) -> None:
    """It was started later than its life began: its clocks begin there."""
    state = outcome.state
    if evidence.spawned_at is not None and evidence.spawned_at != state.spawned_at:
        state = replace(state, spawned_at=evidence.spawned_at)
    if state.held:
        state = replace(state, held="", sentence="its wait is over; it is being started")
    outcome.state = state
