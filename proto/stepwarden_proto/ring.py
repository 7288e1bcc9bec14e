"""What the words of a progress page say about steps. Used by the agent's beats and by the reader.

`words` is the page as a sequence of signed 64-bit integers, the header first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from stepwarden_proto.page import (
    HEADER_WORDS,
    RING_SLOTS,
    S_BEGIN_NS,
    S_END,
    S_END_NS,
    S_LAST,
    S_NUM_SEQS,
    S_NUM_TOKENS,
    S_PHASE,
    SLOT_WORDS,
)

PAGE_WORDS: Final = HEADER_WORDS + RING_SLOTS * SLOT_WORDS
"""Words of a page that have a meaning."""

SLOT_STARTS: Final = tuple(range(HEADER_WORDS, PAGE_WORDS, SLOT_WORDS))


class SlotStep(NamedTuple):
    """One step as its slot tells it. `end_ns` is 0 while it is open; -1 in a count: unknown."""

    number: int
    begin_ns: int
    num_seqs: int
    num_tokens: int
    phase: int
    end_ns: int


def whole(words: Sequence[int], start: int) -> bool:
    """True where the slot at `start` holds a step and is not being written."""
    return words[start] == words[start + S_LAST] and words[start] > 0


def step_at(words: Sequence[int], start: int) -> SlotStep:
    """The step in the (whole) slot at `start`. Negative counts become -1."""
    number = words[start]
    return SlotStep(
        number,
        words[start + S_BEGIN_NS],
        max(-1, words[start + S_NUM_SEQS]),
        max(-1, words[start + S_NUM_TOKENS]),
        words[start + S_PHASE],
        words[start + S_END_NS] if words[start + S_END] == number else 0,
    )


def open_steps(words: Sequence[int]) -> list[SlotStep]:
    """All open steps, the oldest first."""
    return sorted(
        step_at(words, start)
        for start in SLOT_STARTS
        if words[start + S_END] != words[start] and whole(words, start)
    )


def steps_begun(words: Sequence[int]) -> int:
    """Number of the newest step whose begin was recorded; 0 before the first."""
    return max(words[start + S_LAST] for start in SLOT_STARTS)
