"""Whether a step is still open, and how long one took that has ended."""

from __future__ import annotations

from stepwarden.core.evidence import RankEvidence


def is_open(rank: RankEvidence | None, number: int) -> bool:
    """Whether this rank still runs that step; False where nothing is known of it."""
    return rank is not None and any(step.number == number for step in rank.steps)


def length_of(rank: RankEvidence | None, number: int) -> float | None:
    """Its length in seconds; None where its end was not seen or not stamped."""
    ended = () if rank is None else rank.last_ended
    return next((step.seconds for step in ended if step.number == number), None)
