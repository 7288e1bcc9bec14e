"""The clients of the demo server: they keep a batch of some size full, or send one heavy one."""

from __future__ import annotations

import random

from stepwarden.demo.engine import Engine, Request

PROMPT_TOKENS = 4
NEW_TOKENS = 48
SPREAD = 16  # lengths differ, so that requests join and leave at different steps


class Traffic:
    """Keeps `batch` requests in flight. `keep` is called by the thread that steps."""

    def __init__(self, engine: Engine, vocabulary: int, context: int, seed: int) -> None:
        self._engine = engine
        self._vocabulary = vocabulary
        self._context = context
        self._random = random.Random(seed)
        self._batch = 0
        self._heavy: list[Request] = []

    def load(self, batch: int) -> None:
        """Keep so many requests in flight from now on; ValueError outside 0 .. max_num_seqs."""
        if not 0 <= batch <= self._engine.max_num_seqs:
            raise ValueError(f"batch must be from 0 to {self._engine.max_num_seqs}, not {batch}")
        if batch < self._batch:
            self._engine.abort_all()
        self._batch = batch

    def slow_step(self, seconds: float) -> int:
        """Let the whole batch bring prompts so long that their prefill takes about `seconds`.

        Returns the tokens of each. What runs now is aborted to make room.
        """
        rate = self._engine.counts.prompt_rate
        if rate is None or not self._batch:
            raise ValueError("load a batch first: there is no measured speed or no batch yet")
        length = round(seconds * rate / self._batch)
        length = max(PROMPT_TOKENS, min(length, self._context - NEW_TOKENS))
        self._engine.abort_all()
        self._heavy = self._engine.submit_all(
            [self._prompt(length) for _ in range(self._batch)], new_tokens=2
        )
        return length

    def slow_step_over(self) -> bool:
        """True when the last heavy batch is finished."""
        return all(request.done.is_set() for request in self._heavy)

    def keep(self) -> None:
        """Replace what has finished."""
        for _ in range(self._batch - self._engine.in_flight):
            new_tokens = NEW_TOKENS + self._random.randrange(-SPREAD, SPREAD)
            self._engine.submit(self._prompt(PROMPT_TOKENS), new_tokens)

    def _prompt(self, length: int) -> list[int]:
        return [self._random.randrange(self._vocabulary) for _ in range(length)]
