"""One reading of a rank's page for all who want to know of its ended steps.

Reading it is dear with a thousand busy ranks, so it is done once, whoever asks first; each of those
who ask hears of each step once.
"""

from __future__ import annotations

from stepwarden.edge.page_view import PageView
from stepwarden.edge.step_samples import StepSample, StepSampler

Samples = tuple[list[StepSample], list[StepSample]]
"""Long steps that ended, and intervals of short ones."""

MOST_UNTOLD = 64
"""Kept for one who has not asked for long; the oldest go."""


class StepReader:
    """Reads one rank of one life."""

    def __init__(self) -> None:
        self._writer: object = None
        self._marks: object = None
        self._sampler = StepSampler()
        self._untold: dict[str, Samples] = {}

    def news(self, who: str, page: PageView, adopted: bool) -> Samples:
        """Long and short steps of which `who` was not told yet.

        `adopted`: an earlier daemon has counted what the page shows at first.
        """
        self._untold.setdefault(who, ([], []))
        self._look(page, adopted)
        told = self._untold[who]
        if told[0] or told[1]:
            self._untold[who] = ([], [])
        return told

    def _look(self, page: PageView, adopted: bool) -> None:
        writer = (page.name, page.start_ticks)
        if writer != self._writer:
            self._sampler = StepSampler(known=adopted and self._writer is None)
            self._writer, self._marks = writer, None
        marks = (page.steps_begun, len(page.steps), page.last_ended)
        if marks == self._marks:
            return
        self._marks = marks
        fresh = self._sampler.take(page.words, *page.slots)
        for waiting in self._untold.values():
            for kept, more in zip(waiting, fresh, strict=True):
                kept.extend(more)
                del kept[:-MOST_UNTOLD]
