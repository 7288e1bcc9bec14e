"""Does what was learned in earlier lives fit the first steps of this one?

The same model on the same cores may be another matter today: a build without its kernels, a clock
that is held down, a neighbour gone. A table that is off by more than `MOST` is worse than none.
"""

from __future__ import annotations

from dataclasses import dataclass

MOST = 4.0
STEPS = 3
"""So many first steps are compared; their median decides, for any one of them may be odd."""

SHORT_SECONDS = 1.0
"""Times below count as this: no deadline depends on them, and they are known only roughly."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The first steps so far, each as its time over what was usual."""

    ratios: tuple[float, ...] = ()

    def with_step(self, usual_seconds: float, seconds: float) -> Trial:
        """One more step; the trial is over after `STEPS`."""
        ratio = max(seconds, SHORT_SECONDS) / max(usual_seconds, SHORT_SECONDS)
        return Trial((*self.ratios, ratio))

    @property
    def over(self) -> bool:
        """Whether it has come to a result."""
        return len(self.ratios) >= STEPS

    @property
    def misfit(self) -> float | None:
        """By what factor the steps are slower (above 1) or faster; None where they fit."""
        if not self.over:
            return None
        middle = sorted(self.ratios)[len(self.ratios) // 2]
        return None if 1.0 / MOST <= middle <= MOST else middle
