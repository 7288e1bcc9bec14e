"""What the learned rule gives one step of a worker, for people and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stepwarden.config.settings import WorkerConfig
from stepwarden.core.evidence import Step
from stepwarden.core.learned import Bounds
from stepwarden.core.policy import LEARN_OFF, LEARN_ON
from stepwarden.core.sentences import rank_name
from stepwarden.core.step_bounds import bounds_of, size_of_step
from stepwarden.core.usual import Usual

GROWN = 1_000_000
"""Number of a step that is not young."""

_SAYS = {
    LEARN_ON: "it judges (learn: on)",
    LEARN_OFF: "it is not asked (learn: off)",
}
_OBSERVES = "the budget above holds, and what this would do is told (learn: observe)"


@dataclass(frozen=True, slots=True)
class LearnedExplanation:
    """One rank's bounds for one shape. `of`: for what they hold; `source`: who knows them."""

    rank: str
    of: str
    source: str
    size: int
    bounds: Bounds

    def as_json(self) -> dict[str, Any]:
        """The same as a JSON object."""
        return {
            "rank": self.rank,
            "of": self.of,
            "source": self.source,
            "compared_by_tokens": self.size,
            "alarm_seconds": self.bounds.alarm,
            "idle_death_seconds": self.bounds.idle_death,
            "busy_death_seconds": self.bounds.busy_death,
            "arithmetic": self.bounds.arithmetic,
        }

    def lines(self, learn: str) -> list[str]:
        """The same for people."""
        bounds = self.bounds
        of = f" ({self.of})" if self.of else ""
        return [
            f"learned   {bounds.alarm:.3g} s   {rank_name(self.rank)} of {self.source}{of}",
            f"          {bounds.arithmetic}",
            f"          not working, dead at {bounds.idle_death:.3g} s; working, at"
            f" {bounds.busy_death:.3g} s",
            f"          {_SAYS.get(learn, _OBSERVES)}",
        ]


def explain_learned(
    worker: WorkerConfig,
    shape: tuple[int | None, int | None],
    table: tuple[str, str, Usual],
    source: str,
    lived: int | None,
) -> LearnedExplanation:
    """Explain a step of this shape (sequences, tokens) by one table (rank, of, usual).

    `lived`: steps of the present life; None: not of a life, so nothing of it is young.
    """
    rank, of, usual = table
    policy = worker.policy
    seqs = policy.max_num_seqs if shape[0] is None else shape[0]
    number = GROWN if lived is None else lived + 1
    bounds = bounds_of(policy, usual, Step(number, 0.0, seqs, shape[1]))
    return LearnedExplanation(rank, of, source, size_of_step(policy, seqs, shape[1]), bounds)
