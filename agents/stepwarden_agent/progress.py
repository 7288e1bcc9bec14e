"""The hot path: begin and end of a step as plain stores into the progress page.

`Ring` hands out two closures. Everything that they touch is a cell or a local: attribute look-ups
would cost as much as the stores. No lock, no system call (the clock is read in the vDSO), and no
exception leaves them. Whatever is unusual (a nonsense count, a slot still open, a forked child)
goes to the slow versions below.

Reading the clock is the dearest part, so an ordinary step has only its begin stamped. What the beat
thread finds open for a while at one of its looks is a long step: `watch` puts a `_Stamped` in the
way of its end. So the length of every long step is known exactly, and the others cost one clock
reading less.

One thread begins steps. Any thread may end one, each handle once; ending it again does nothing.
"""

from __future__ import annotations

import itertools
import operator
import time
from collections.abc import Callable
from typing import Protocol

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
    W_OVERFLOWS,
)
from stepwarden_proto.phases import PHASE_CODES

LONG_STEP_NS = 250_000_000
"""A step that is older than this when the beat thread looks is a long one."""

UNKNOWN = -1
MAX_COUNT = 2**63 - 1

# The closures below spell these out as literals, because a global look-up costs time there.
assert (S_FIRST, S_BEGIN_NS, S_NUM_SEQS, S_NUM_TOKENS, S_PHASE, S_LAST) == (0, 1, 2, 3, 4, 5)
assert (S_END_NS, S_END, RING_SLOTS) == (6, 7, 16)


class Begin(Protocol):
    """Signature of `begin`."""

    def __call__(
        self, num_seqs: int = UNKNOWN, num_tokens: int = UNKNOWN, phase: str = "unknown"
    ) -> int:
        """Record the begin of a step; returns its handle, 0 where it was not recorded."""


class End(Protocol):
    """Signature of `end`."""

    def __call__(self, handle: int) -> None:
        """Record the end of the step with this handle; 0 and stale handles do nothing."""


def as_count(value: object) -> int:
    """`value` as a count of 0 ... 2**63 - 1, or -1 (unknown) for anything else."""
    try:
        count = operator.index(value)  # type: ignore[arg-type]  # that is the question here
    except Exception:
        return UNKNOWN
    return count if 0 <= count <= MAX_COUNT else UNKNOWN


def slot_views(words: memoryview) -> tuple[memoryview, ...]:
    """One view of SLOT_WORDS words for each slot of the ring."""
    starts = range(HEADER_WORDS, HEADER_WORDS + RING_SLOTS * SLOT_WORDS, SLOT_WORDS)
    return tuple(words[start : start + SLOT_WORDS] for start in starts)


class _LongSteps:
    """The last few long steps, kept in the header of the page."""

    __slots__ = ("_count", "_words")

    def __init__(self, words: memoryview) -> None:
        self._words = words
        self._count = itertools.count()

    def note(self, number: int, begin_ns: int, end_ns: int) -> None:
        """Keep one more; the oldest gives way."""
        start = W_LONG + LONG_WORDS * (next(self._count) % LONG_STEPS)
        words = self._words
        words[start] = 0
        words[start + 1] = begin_ns
        words[start + 2] = end_ns
        words[start] = number


class _Stamped:
    """Takes the end of a step in place of its slot, and stamps the time first."""

    __slots__ = ("_long_steps", "_slot")

    def __init__(self, slot: memoryview, long_steps: _LongSteps) -> None:
        self._slot = slot
        self._long_steps = long_steps

    def __setitem__(self, word: int, handle: int) -> None:
        slot = self._slot
        try:
            slot[S_END_NS] = end_ns = time.monotonic_ns()
            begin_ns = slot[S_BEGIN_NS]
            # Ordinary steps come this way too, until the next look.
            if end_ns - begin_ns > LONG_STEP_NS:
                self._long_steps.note(handle, begin_ns, end_ns)
        finally:
            # Whatever becomes of the stamps, the step has ended.
            slot[word] = handle


class Ring:
    """The ring of steps on one page, until it is attached to another or to none.

    `watch()`, called by another thread now and then, has the end of what is open now stamped.

    `unarmed` is called by a begin that finds no page; it may attach one (a forked child does).
    """

    begin: Begin
    end: End

    def __init__(self, unarmed: Callable[[], None]) -> None:
        self.begin, self.end, self.attach, self.watch = _closures(unarmed)


def _closures(  # noqa: PLR0915 - these functions share their cells, so they stand together
    unarmed: Callable[[], None],
) -> tuple[Begin, End, Callable[[memoryview | None], None], Callable[[], None]]:
    clock = time.monotonic_ns
    codes = PHASE_CODES
    words: memoryview | None = None
    slots: tuple[memoryview, ...] = ()  # empty: a look-up fails and takes the slow way
    enders: list[memoryview | _Stamped] = []  # where the end of each slot's step is stored
    stamped: tuple[_Stamped, ...] = ()
    open_: list[int | None] = [None] * RING_SLOTS  # number of the open step in each slot
    phases: list[str] = [""] * RING_SLOTS  # the phase that each slot holds already
    number = 0

    def begin(num_seqs: int = -1, num_tokens: int = -1, phase: str = "unknown") -> int:
        nonlocal number
        try:
            step = number + 1
            index = step & 15
            if open_[index]:
                return begin_slowly(num_seqs, num_tokens, phase)
            slot = slots[index]
            slot[0] = step
            slot[1] = clock()
            slot[2] = num_seqs
            slot[3] = num_tokens
            if phases[index] is not phase:
                slot[4] = codes[phase]
                phases[index] = phase
            # The number moves last: whatever fails above is done again in the same slot.
            slot[5] = open_[index] = number = step
            return step
        except Exception:
            return begin_slowly(num_seqs, num_tokens, phase)

    def end(handle: int) -> None:
        try:
            index = handle & 15
            if open_[index] == handle:
                enders[index][7] = handle
                # Only now may the stepping thread use the slot again.
                open_[index] = None
        except Exception:
            return

    def watch() -> None:
        # Whatever happens between these lines, an end is stored, with its stamp or without.
        # A step that began just before a look is an ordinary one.
        old = clock() - LONG_STEP_NS
        for index, (slot, other) in enumerate(zip(slots, stamped, strict=False)):
            enders[index] = other if open_[index] and slot[S_BEGIN_NS] < old else slot

    def begin_slowly(num_seqs: object, num_tokens: object, phase: object) -> int:
        nonlocal number
        try:
            if words is None:
                unarmed()
            if words is None:
                return 0
            step = number + 1
            if open_[step & 15]:
                number = step
                words[W_OVERFLOWS] += 1
                return 0
            code = codes.get(phase, 0) if isinstance(phase, str) else 0
            record(step, as_count(num_seqs), as_count(num_tokens), code)
            return step
        except Exception:
            return 0

    def record(step: int, num_seqs: int, num_tokens: int, code: int) -> None:
        nonlocal number
        slot = slots[step & 15]
        slot[0] = step
        slot[1] = clock()
        slot[2] = num_seqs
        slot[3] = num_tokens
        phases[step & 15] = ""
        slot[4] = code
        slot[5] = open_[step & 15] = number = step

    def attach(page: memoryview | None) -> None:
        """Write to `page` from now on, counting from 1; None: to nothing."""
        nonlocal words, slots, enders, stamped, open_, phases, number
        open_ = [None] * RING_SLOTS
        phases = [""] * RING_SLOTS
        number = 0
        words = page
        slots = () if page is None else slot_views(page)
        enders = list(slots)
        if page is not None:
            long_steps = _LongSteps(page)
            stamped = tuple(_Stamped(slot, long_steps) for slot in slots)

    return begin, end, attach, watch
