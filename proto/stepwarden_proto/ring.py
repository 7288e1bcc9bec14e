"""What the words of a progress page say about steps. Used by the agent's beats and by the reader.

`words` is the page as a sequence of signed 64-bit integers, the header first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from stepwarden_proto.page import (
    HEADER_WORDS,
    LONG_STEPS,
    LONG_WORDS,
    RING_SLOTS,
    S_BEGIN_NS,
    S_END,
    S_END_NS,
    S_FIRST,
    S_LAST,
    S_NUM_SEQS,
    S_NUM_TOKENS,
    S_PHASE,
    SLOT_WORDS,
    W_LONG,
)

PAGE_WORDS: Final = HEADER_WORDS + RING_SLOTS * SLOT_WORDS
"""Words of a page that have a meaning."""

_END_OF_LONG: Final = W_LONG + LONG_STEPS * LONG_WORDS

SLOT_STARTS: Final = tuple(range(HEADER_WORDS, PAGE_WORDS, SLOT_WORDS))


class SlotStep(NamedTuple):
    """One step as its slot tells it; -1 in a count: unknown.

    `end_ns` is 0 while it is open, and where its end was not stamped.
    """

    number: int
    begin_ns: int
    num_seqs: int
    num_tokens: int
    phase: int
    end_ns: int


def step_at(words: Sequence[int], start: int) -> SlotStep:
    """The step in the slot at `start`, which must be whole. Negative counts become -1."""
    number = words[start]
    return SlotStep(
        number,
        words[start + S_BEGIN_NS],
        max(-1, words[start + S_NUM_SEQS]),
        max(-1, words[start + S_NUM_TOKENS]),
        words[start + S_PHASE],
        end_ns(words, start) if words[start + S_END] == number else 0,
    )


def end_ns(words: Sequence[int], start: int) -> int:
    """When the ended step in the slot at `start` ended; 0 where its end was not stamped."""
    stamp = words[start + S_END_NS]
    return stamp if stamp >= words[start + S_BEGIN_NS] else 0


def whole_slots(words: Sequence[int]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Number and start of each open step and of each ended one, the oldest first.

    Slots that are being written (FIRST is not LAST) or were never used are in neither list.
    """
    running: list[tuple[int, int]] = []
    ended: list[tuple[int, int]] = []
    firsts = words[HEADER_WORDS + S_FIRST : PAGE_WORDS : SLOT_WORDS]
    lasts = words[HEADER_WORDS + S_LAST : PAGE_WORDS : SLOT_WORDS]
    ends = words[HEADER_WORDS + S_END : PAGE_WORDS : SLOT_WORDS]
    for start, first, last, end in zip(SLOT_STARTS, firsts, lasts, ends, strict=True):
        if first == last > 0:
            (ended if end == first else running).append((first, start))
    running.sort()
    ended.sort()
    return running, ended


def open_steps(words: Sequence[int]) -> list[SlotStep]:
    """All open steps, the oldest first."""
    running, _ = whole_slots(words)
    return [step_at(words, start) for _, start in running]


def steps_begun(words: Sequence[int]) -> int:
    """Number of the newest step whose begin was recorded; 0 before the first."""
    return max(words[HEADER_WORDS + S_LAST : PAGE_WORDS : SLOT_WORDS])


def long_steps(words: Sequence[int]) -> list[tuple[int, int, int]]:
    """Number, begin and end (ns of the writer's clock) of the last long steps, the oldest first."""
    records: list[tuple[int, int, int]] = []
    if not any(words[W_LONG:_END_OF_LONG]):
        return records  # as a rule
    for start in range(W_LONG, _END_OF_LONG, LONG_WORDS):
        number, begin_ns, end_ns = words[start : start + LONG_WORDS]
        if number > 0 and end_ns >= begin_ns > 0:
            records.append((number, begin_ns, end_ns))
    return sorted(records)
