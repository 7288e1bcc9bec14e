"""A life that an earlier daemon began: unknown until something of it is seen.

No clock runs for it meanwhile, and nothing but its own end kills it. What is seen of it later is
judged from then on, with fresh windows.
"""

from __future__ import annotations

from dataclasses import replace

from stepwarden.core import sentences
from stepwarden.core.clocks import live_ranks
from stepwarden.core.deadline import elapsed
from stepwarden.core.event import Kind
from stepwarden.core.evidence import RankEvidence, WorkerEvidence
from stepwarden.core.lifecycle import Trigger
from stepwarden.core.policy import AGENT_NONE, AGENT_REQUIRED, WorkerPolicy
from stepwarden.core.readiness import came_up, ready_now, ready_sentence
from stepwarden.core.worker import Outcome

_UNSEEN = "adopted"


def adopted(outcome: Outcome, policy: WorkerPolicy, evidence: WorkerEvidence, now: float) -> None:
    """One turn of an adopted worker whose process lives."""
    state = outcome.state
    if evidence.held:
        # Nothing of it runs that could be seen: the wait for its start begins anew.
        outcome.state = replace(state, spawned_at=now, ready_at=None)
        outcome.move(Trigger.BACK_UNREADY, now, "adopted; nothing of it runs yet")
        return
    if not _seen(policy, evidence):
        if _was_starting(outcome, policy):
            outcome.state = replace(state, spawned_at=now)
            outcome.move(Trigger.BACK_UNREADY, now, "adopted while it started; its probe is asked")
        else:
            _warn(outcome, policy, now)
        return
    up = came_up(state, evidence)
    state = replace(state, came_up=up)
    if state.ready or ready_now(policy, evidence, up):
        outcome.state = replace(state, ready_at=now if state.ready_at is None else state.ready_at)
        told = f"adopted, seen again; {ready_sentence(policy, evidence)}"
        outcome.move(Trigger.BACK, now, told)
    else:
        # How long it had been starting before is not held against it.
        outcome.state = replace(state, spawned_at=now)
        outcome.move(Trigger.BACK_UNREADY, now, "adopted, seen again; it is not ready yet")


def _was_starting(outcome: Outcome, policy: WorkerPolicy) -> bool:
    """Never ready yet, and its probe will say when: a start that hangs must not hide in here.

    An agent that was never heard of says nothing of the kind; that one is left alone.
    """
    return policy.probed and policy.agent != AGENT_REQUIRED and not outcome.state.ready


def _seen(policy: WorkerPolicy, evidence: WorkerEvidence) -> bool:
    if policy.agent == AGENT_NONE:
        return evidence.probe_ok or not policy.probed
    ranks = live_ranks(evidence).values()
    if not ranks:
        return policy.agent != AGENT_REQUIRED and (evidence.probe_ok or not policy.probed)
    return any(map(_shows, ranks))


def _shows(rank: RankEvidence) -> bool:
    """A beat has come, its page has moved, or a step is open on it."""
    moved = rank.moved_at is not None and rank.moved_at > rank.attached_at
    return rank.beat_at is not None or moved or bool(rank.steps)


def _warn(outcome: Outcome, policy: WorkerPolicy, now: float) -> None:
    state = outcome.state
    waited = elapsed(state.since, now)
    if waited < policy.heartbeat_timeout or _UNSEEN in state.warned:
        return
    outcome.state = replace(state, warned=state.warned | {_UNSEEN})
    what = "its agent does not come back"
    if policy.probed and policy.agent != AGENT_REQUIRED:
        what = "its probe does not pass"
    text = f"adopted {sentences.seconds(waited)} ago and nothing is seen of it: {what};"
    text += " it is left alone, look at it"
    outcome.note(Kind.ADOPTED_UNSEEN, text)
