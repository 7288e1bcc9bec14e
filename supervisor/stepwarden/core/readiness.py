"""Is a worker ready, and which of its ranks are past loading?"""

from __future__ import annotations

from stepwarden.core import sentences
from stepwarden.core.clocks import live_ranks
from stepwarden.core.evidence import WorkerEvidence
from stepwarden.core.policy import AGENT_REQUIRED, WorkerPolicy
from stepwarden.core.worker import WorkerState


def came_up(state: WorkerState, evidence: WorkerEvidence) -> frozenset[str]:
    """Ranks past loading. One that said bye has to come up again should it ever return."""
    ranks = live_ranks(evidence)
    return frozenset(n for n, r in ranks.items() if n in state.came_up or not r.starting_up)


def ready_now(policy: WorkerPolicy, evidence: WorkerEvidence, up: frozenset[str]) -> bool:
    """By its probe where it has one; else its process runs and its ranks are past loading."""
    if not runs(policy, evidence):
        return False
    if policy.probed:
        return evidence.probe_ok
    ranks = live_ranks(evidence)
    if policy.agent == AGENT_REQUIRED and not ranks:
        return False
    return all(name in up for name in ranks)


def runs(policy: WorkerPolicy, evidence: WorkerEvidence) -> bool:
    """Whether its process is known to run.

    Of a worker that something else started, in a pid namespace of its own, the agent is all that
    there is to see.
    """
    if evidence.held:
        return False
    return evidence.main is not None or (policy.attached and bool(live_ranks(evidence)))


def ready_sentence(policy: WorkerPolicy, evidence: WorkerEvidence) -> str:
    """What made it ready."""
    if policy.probed:
        return "ready: its probe has passed"
    names = live_ranks(evidence)
    return f"ready: {sentences.attached(names)}" if names else "its process runs"
