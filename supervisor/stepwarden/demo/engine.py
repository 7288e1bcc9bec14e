"""Continuous batching: requests join and leave the running batch between steps.

Each step is one forward pass, either of all newly admitted prompts (prefill) or of one token for
each running sequence (decode), and is reported to the agent with its shape.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from stepwarden_agent import Agent

from stepwarden.clock import Clock
from stepwarden.core.deadline import elapsed
from stepwarden.demo.model import Cache, Ints, Model, greedy
from stepwarden.demo.watchdog import EngineWatchdog

PREFILL_GROUP = 8  # sequences in one matrix product of a prefill; bounds its memory
RATE_TOKENS = 256  # a prefill at least this large says how fast the machine is


@dataclass(eq=False, slots=True)
class Request:
    """One prompt and what came of it. `done` is set when it is finished or aborted."""

    prompt: tuple[int, ...]
    new_tokens: int
    output: list[int] = field(default_factory=list)
    slot: int = -1
    done: threading.Event = field(default_factory=threading.Event)

    @property
    def length(self) -> int:
        """Tokens in the cache so far; the newest output is not there yet."""
        return len(self.prompt) + len(self.output) - 1


@dataclass(slots=True)
class Counts:
    """What the engine did. `prompt_rate`: prompt tokens per second; None: not measured yet."""

    steps: int = 0
    tokens: int = 0
    finished: int = 0
    last_step_seconds: float = 0.0
    longest_step_seconds: float = 0.0
    prompt_rate: float | None = None


class Engine:
    """Serves requests with `model`, at most `max_num_seqs` at once.

    `submit`, `abort_all` and `freeze` may be called from any thread, `step` from one only.
    """

    def __init__(
        self,
        model: Model,
        agent: Agent,
        max_num_seqs: int,
        clock: Clock,
    ) -> None:
        self.counts = Counts()
        self.watchdog: EngineWatchdog | None = None
        self.max_num_seqs = max_num_seqs
        self._model = model
        self._agent = agent
        self._clock = clock
        self._cache = Cache(model.shape, max_num_seqs)
        self._arrived = threading.Condition()
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []
        self._free = list(range(max_num_seqs))
        self._abort = False
        self._freeze = False

    def submit(self, prompt: Sequence[int], new_tokens: int) -> Request:
        """Queue one request. ValueError: it is empty or would not fit into the context."""
        return self.submit_all([prompt], new_tokens)[0]

    def submit_all(self, prompts: Sequence[Sequence[int]], new_tokens: int) -> list[Request]:
        """Queue several at the same instant; as `submit`."""
        requests = [self._checked(prompt, new_tokens) for prompt in prompts]
        with self._arrived:
            self._waiting.extend(requests)
            self._arrived.notify()
        return requests

    def _checked(self, prompt: Sequence[int], new_tokens: int) -> Request:
        if not prompt or new_tokens < 1:
            raise ValueError("a request needs a prompt and at least one new token")
        if len(prompt) + new_tokens > self._model.shape.context:
            raise ValueError(f"longer than the context of {self._model.shape.context} tokens")
        return Request(tuple(prompt), new_tokens)

    def abort_all(self) -> None:
        """Drop what waits now, and what runs at the next step."""
        with self._arrived:
            for request in self._waiting:
                request.done.set()
            self._waiting.clear()
            self._abort = True
            self._arrived.notify()

    def freeze(self) -> None:
        """Let the next step wait on a lock that nobody will ever give back."""
        self._freeze = True

    @property
    def in_flight(self) -> int:
        """Requests accepted and not finished."""
        return len(self._waiting) + len(self._running)

    def wait_for_work(self, seconds: float) -> None:
        """Return when there is something to do, after `seconds` at the latest."""
        with self._arrived:
            if not self._waiting and not self._running:
                self._arrived.wait(seconds)

    def step(self) -> bool:
        """One forward pass; False when there was nothing to do."""
        self._drop_aborted()
        admitted = self._admit()
        if admitted:
            self._prefill(admitted)
        elif self._running:
            self._decode()
        else:
            return False
        self._retire()
        return True

    def _drop_aborted(self) -> None:
        with self._arrived:
            if not self._abort:
                return
            self._abort = False
        for request in self._running:
            self._release(request)
        self._running.clear()

    def _admit(self) -> list[Request]:
        admitted = []
        with self._arrived:
            while self._waiting and self._free:
                request = self._waiting.popleft()
                request.slot = self._free.pop()
                admitted.append(request)
            self._running += admitted
        return admitted

    def _prefill(self, admitted: list[Request]) -> None:
        tokens = sum(len(request.prompt) for request in admitted)
        with self._timed_step(len(admitted), tokens, "prefill"):
            for group in _groups(admitted):
                prompts = np.array([request.prompt for request in group], dtype=np.int64)
                self._forward(group, prompts, np.zeros(len(group), dtype=np.int64))
        if tokens >= RATE_TOKENS and self.counts.last_step_seconds:
            self.counts.prompt_rate = tokens / self.counts.last_step_seconds

    def _decode(self) -> None:
        batch = len(self._running)
        with self._timed_step(batch, batch, "decode"):
            newest = np.array([[request.output[-1]] for request in self._running])
            starts = np.array([request.length for request in self._running])
            self._forward(self._running, newest, starts)

    def _forward(self, requests: Sequence[Request], tokens: Ints, starts: Ints) -> None:
        slots = np.array([request.slot for request in requests])
        chosen = greedy(self._model.forward(tokens, starts, slots, self._cache))
        for request, token in zip(requests, chosen, strict=True):
            request.output.append(int(token))

    @contextmanager
    def _timed_step(self, num_seqs: int, num_tokens: int, phase: str) -> Iterator[None]:
        begin = self._clock.monotonic()
        if self.watchdog is not None:
            self.watchdog.arm()
        handle = self._agent.begin(num_seqs, num_tokens, phase)
        try:
            if self._freeze:
                _wait_for_ever()
            yield
        finally:
            self._agent.end(handle)
            if self.watchdog is not None:
                self.watchdog.disarm()
            counts = self.counts
            counts.steps += 1
            counts.tokens += num_tokens
            counts.last_step_seconds = elapsed(begin, self._clock.monotonic())
            counts.longest_step_seconds = max(counts.longest_step_seconds, counts.last_step_seconds)

    def _retire(self) -> None:
        finished = [r for r in self._running if len(r.output) >= r.new_tokens]
        if not finished:
            return
        self._running = [r for r in self._running if len(r.output) < r.new_tokens]
        for request in finished:
            self._release(request)
        self.counts.finished += len(finished)

    def _release(self, request: Request) -> None:
        self._free.append(request.slot)
        request.done.set()


def _groups(requests: Sequence[Request]) -> Iterator[list[Request]]:
    """Prompts of one length together, a few at a time: a batch is a rectangle."""
    by_length = sorted(requests, key=lambda request: len(request.prompt))
    for _, same in groupby(by_length, key=lambda request: len(request.prompt)):
        group = list(same)
        for start in range(0, len(group), PREFILL_GROUP):
            yield group[start : start + PREFILL_GROUP]


def _wait_for_ever() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()  # held by this very thread: a deadlock, at no CPU
