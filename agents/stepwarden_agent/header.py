"""Writes the header words of the page: phase, lease, queue of an engine core, tick."""

from __future__ import annotations

import time

from stepwarden_proto import page
from stepwarden_proto.phases import PHASE_CODES, phase_name

from stepwarden_agent.progress import as_count


class Header:
    """The header of one page. Words that belong together are stored so that no reader is misled
    by seeing only the first of them.
    """

    def __init__(self, words: memoryview) -> None:
        self.words = words

    @property
    def phase(self) -> str:
        """The declared phase."""
        return phase_name(self.words[page.W_PHASE])

    def set_phase(self, name: str) -> None:
        """Declare a phase; an unlisted name counts as "unknown"."""
        self.words[page.W_PHASE] = PHASE_CODES.get(name, 0)
        self.words[page.W_PHASE_NS] = time.monotonic_ns()

    def set_lease(self, begin_ns: int, length_ns: int) -> None:
        """Show a lease; begin 0: none is held."""
        self.words[page.W_LEASE_BEGIN_NS] = 0
        self.words[page.W_LEASE_NS] = length_ns
        self.words[page.W_LEASE_BEGIN_NS] = begin_ns

    def set_unfinished(self, unfinished: object) -> None:
        """Store the length of an engine core's queue, and when it last rose from 0."""
        count = max(0, as_count(unfinished))
        before = self.words[page.W_UNFINISHED]
        if count and before <= 0:
            self.words[page.W_UNFINISHED_NS] = time.monotonic_ns()
        self.words[page.W_UNFINISHED] = count
        if not count:
            self.words[page.W_UNFINISHED_NS] = 0

    def loop_turn(self) -> None:
        """Count one turn of an engine core's loop."""
        self.words[page.W_LOOP_TURNS] += 1
        self.words[page.W_LOOP_NS] = time.monotonic_ns()

    def tick(self) -> None:
        """The beat thread lives."""
        self.words[page.W_TICK] += 1
        self.words[page.W_TICK_NS] = time.monotonic_ns()

    def close(self) -> None:
        """Mark a clean end."""
        self.words[page.W_CLOSED] = 1
