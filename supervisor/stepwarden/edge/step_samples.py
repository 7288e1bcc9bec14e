"""Durations of steps as far as a progress page shows them, sampled by whoever reads it each second.

The end of a step is stamped only where the agent's beat thread saw it open for longer than 0.25 s
at one of its two looks a second. So of long steps the duration is known exactly, and the page keeps
the last few even when their slots are used again. Of short steps the page knows when each began:
the time from one begin to the next is what the step and the rest after it took together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from stepwarden_proto import page as layout
from stepwarden_proto import ring
from stepwarden_proto.phases import phase_name

from stepwarden.edge.page_view import NANOSECONDS, Slots

LONGEST_UNSTAMPED_SECONDS = 0.75
"""The agent stamps every step that is longer. So a longer time between the begins of two steps,
the first of which has no stamp, is for the most part a rest without work."""

MOST_INTERVALS = 5
"""Of the newest steps at each look: enough for a picture, and cheap with a thousand busy ranks."""


@dataclass(frozen=True, slots=True)
class StepSample:
    """One step and what it took, in seconds. Counts are None where the engine did not say."""

    number: int
    seconds: float
    phase: str = "unknown"
    num_seqs: int | None = None
    num_tokens: int | None = None


_Shape = tuple[str, int | None, int | None]
_UNKNOWN: _Shape = ("unknown", None, None)


class StepSampler:
    """Remembers of one page what it has told already. `known`: its present steps are no news."""

    def __init__(self, known: bool = False) -> None:
        self._known = known
        self._told: frozenset[int] = frozenset()
        self._begun = 0
        self._open: dict[int, _Shape] = {}

    def take(
        self, words: Sequence[int], running: Slots, ended: Slots
    ) -> tuple[list[StepSample], list[StepSample]]:
        """Long steps that ended, and intervals of short ones, since the last call; each once.

        `running`, `ended`: the whole slots of `words`, as `ring.whole_slots` gives them.
        """
        stamped = _stamped(words, ended)
        fresh = [] if self._known else [n for n in sorted(stamped) if n not in self._told]
        slots = {**dict(running), **dict(ended)}
        long = [self._sample(words, slots, number, stamped[number]) for number in fresh]
        short = [] if self._known else self._intervals(words, slots, dict(ended), stamped)
        self._known = False
        self._told = frozenset(stamped)
        self._begun = max(slots, default=self._begun)
        self._open = {number: _shape(words, start) for number, start in running}
        return long, short

    def _sample(
        self, words: Sequence[int], slots: dict[int, int], number: int, seconds: float
    ) -> StepSample:
        start = slots.get(number)
        shape = self._open.get(number, _UNKNOWN) if start is None else _shape(words, start)
        return StepSample(number, seconds, *shape)

    def _intervals(
        self,
        words: Sequence[int],
        slots: dict[int, int],
        ended: dict[int, int],
        stamped: dict[int, float],
    ) -> list[StepSample]:
        found = []
        newest = sorted(slots)[-MOST_INTERVALS - 1 :]
        for number, following in pairwise(newest):
            # The last one of the look before had no successor yet.
            old = number < self._begun
            if old or following != number + 1 or number not in ended or number in stamped:
                continue
            nanoseconds = _begin(words, slots[following]) - _begin(words, slots[number])
            if 0 <= nanoseconds <= LONGEST_UNSTAMPED_SECONDS * NANOSECONDS:
                shape = _shape(words, slots[number])
                found.append(StepSample(number, nanoseconds / NANOSECONDS, *shape))
        return found


def _stamped(words: Sequence[int], ended: Slots) -> dict[int, float]:
    """Seconds of each step whose end is stamped, by number."""
    found = {n: (end_ns - begin_ns) / NANOSECONDS for n, begin_ns, end_ns in ring.long_steps(words)}
    for number, start in ended:
        end = ring.end_ns(words, start)
        if end:
            found[number] = (end - _begin(words, start)) / NANOSECONDS
    return found


def _begin(words: Sequence[int], start: int) -> int:
    return words[start + layout.S_BEGIN_NS]


def _shape(words: Sequence[int], start: int) -> _Shape:
    seqs, tokens = words[start + layout.S_NUM_SEQS], words[start + layout.S_NUM_TOKENS]
    phase = phase_name(words[start + layout.S_PHASE])
    return phase, None if seqs < 1 else seqs, None if tokens < 0 else tokens
