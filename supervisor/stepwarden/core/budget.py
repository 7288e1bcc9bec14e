"""How long one step may take: budget(backend, phase, num_seqs, num_tokens), and its hard cap.

Two ways to say it, both monotone in the batch and never above `maximum`:

- `Formula`: ``min(base + per_seq * num_seqs + per_token * num_tokens, maximum)``
- `Rows`: ``{1: 5 s, 8: 8 s, 64: 40 s}``; the next row up holds; beyond the last row `beyond`
  holds, which is the last row's own value unless the operator says more.

The shipped numbers are the published ones: gpu 30 s + 0.2 s per sequence, cpu 300 s + 1 s per
sequence (10x and 5x), never above 1800 s.
"""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_MAX_SECONDS = 1800.0
DEFAULT_BUSY_FACTOR = 4.0


@dataclass(frozen=True, slots=True)
class Budget:
    """A number of seconds together with the arithmetic that gave it, for people."""

    seconds: float
    arithmetic: str


@dataclass(frozen=True, slots=True)
class Formula:
    """A budget that grows linearly with the batch. All fields in seconds, all >= 0."""

    base: float
    per_seq: float
    per_token: float = 0.0
    maximum: float = DEFAULT_MAX_SECONDS

    def budget(self, num_seqs: int, num_tokens: int | None) -> Budget:
        """The budget of a step of this shape; unknown tokens add nothing."""
        tokens = max(0, num_tokens or 0)
        raw = self.base + self.per_seq * num_seqs + self.per_token * tokens
        text = f"{self.base:g} s + {self.per_seq:g} s * {num_seqs} seqs"
        if self.per_token:
            text += f" + {self.per_token:g} s * {tokens} tokens"
        return _capped(raw, self.maximum, text)

    def smallest(self) -> float:
        """No step of any shape has a smaller budget than this."""
        return min(self.base + self.per_seq, self.maximum)


@dataclass(frozen=True, slots=True)
class Rows:
    """A budget by batch rows: (num_seqs, seconds), both rising. `per_token` adds to a row.

    `beyond` (seconds, not below the last row) holds for batches larger than the last row.
    """

    rows: tuple[tuple[int, float], ...]
    beyond: float | None = None
    per_token: float = 0.0
    maximum: float = DEFAULT_MAX_SECONDS

    def budget(self, num_seqs: int, num_tokens: int | None) -> Budget:
        """The budget of a step of this shape; unknown tokens add nothing."""
        tokens = max(0, num_tokens or 0)
        raw, text = self._row(num_seqs)
        if self.per_token:
            raw += self.per_token * tokens
            text += f" + {self.per_token:g} s * {tokens} tokens"
        return _capped(raw, self.maximum, text)

    def smallest(self) -> float:
        """No step of any shape has a smaller budget than this."""
        return min(self.rows[0][1], self.maximum)

    def _row(self, num_seqs: int) -> tuple[float, str]:
        for batch, seconds in self.rows:
            if num_seqs <= batch:
                return seconds, f"row {batch}: {seconds:g} s"
        batch, seconds = self.rows[-1]
        fallback = seconds if self.beyond is None else max(seconds, self.beyond)
        return fallback, f"{num_seqs} seqs is beyond the last row {batch}: {fallback:g} s"


StepRule = Formula | Rows


def _capped(raw: float, maximum: float, text: str) -> Budget:
    if raw > maximum:
        return Budget(maximum, f"{text} = {raw:g} s, capped at {maximum:g} s")
    return Budget(raw, f"{text} = {raw:g} s")


def hard_cap(
    budget: float, window: float, busy_factor: float, maximum: float, override: float | None
) -> float:
    """Seconds after which even a busy rank is dead, counted from where its clock began.

    ``max(budget + window, min(busy_factor * budget, maximum))``; an override replaces the second
    part, so that the first retry window always fits.
    """
    bound = min(busy_factor * budget, maximum) if override is None else override
    return max(budget + window, bound)


SHIPPED: dict[str, Formula] = {
    "gpu": Formula(base=30.0, per_seq=0.2),
    "cpu": Formula(base=300.0, per_seq=1.0),
}
"""The published policy: what a step may take where the operator says nothing else."""
