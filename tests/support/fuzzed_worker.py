"""A worker whose agents say whatever fuzzing made up, judged as the daemon judges it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stepwarden.core import turn
from stepwarden.core.awareness import Awareness
from stepwarden.core.evidence import WorkerEvidence
from stepwarden.core.heartbeat import BeatFacts
from stepwarden.core.lifecycle import LIVE, State
from stepwarden.core.worker import WorkerState
from stepwarden.daemon import gather
from stepwarden.daemon.leases import KEPT_LEASES
from stepwarden.daemon.life import Life
from stepwarden.edge.page_reader import PageReader

from support.chaos_world import POLICIES

SPAWNED = 900.0
PAUSE = 0.05  # seconds of invented time from one input to the next


class FuzzedWorker:
    """One life; a state that has ended begins anew, the life and its memory go on."""

    def __init__(self, pages: Path) -> None:
        self.reader = PageReader(pages, not_before=SPAWNED)
        self.life = Life("w", 1, "inc-1", pages, self.reader, spawned_at=SPAWNED)
        self.now = 1000.0
        self.ended = 0
        self._state = self._fresh()

    def take(self, facts: BeatFacts) -> None:
        """A beat has come."""
        gather.take_beat(self.life, facts, self.now)

    def turn(self) -> WorkerEvidence:
        """One turn of the loop, a moment later; what it had to judge."""
        self.now += PAUSE
        gather.read_pages(self.life, lambda _: True, self.now)
        gather.arrivals(self.life)
        self._judge(evidence := gather.evidence_of(self.life))
        self._check(evidence)
        return evidence

    def _judge(self, evidence: WorkerEvidence) -> None:
        policy = POLICIES[self.ended % len(POLICIES)]
        clocks = turn.clocks_of(self._state, policy, evidence, Awareness(), self.now)
        gather.sample(self.life, turn.late_subjects(clocks, self.now), None, self.now)
        turn.next_wake(self._state, policy, clocks, Awareness(), self.now)
        outcome = turn.advance(self._state, policy, evidence, Awareness(), self.now)
        for event in outcome.events:
            assert event.sentence.isprintable()
            assert len(event.sentence) < 2000
        self._state = outcome.state
        if self._state.lifecycle not in LIVE:
            self.ended += 1
            self._state = self._fresh()

    def _fresh(self) -> WorkerState:
        return WorkerState("w", lifecycle=State.STARTING, since=self.now)

    def _check(self, evidence: WorkerEvidence) -> None:
        assert len(evidence.ranks) <= gather.MAX_RANKS
        for rank in evidence.ranks.values():
            instants = [rank.beat_at, rank.moved_at, rank.stepped_at, rank.phase_since]
            instants += [step.begin for step in rank.steps]
            instants += [lease.begin for lease in rank.leases]
            assert all(at is None or SPAWNED <= at <= self.now for at in instants)
            assert all(lease.seconds < math.inf for lease in rank.leases)
            assert len(rank.leases) <= KEPT_LEASES
            assert rank.steps_begun >= 0 <= rank.steps_ended


@contextmanager
def fuzzed_worker(pages: Path) -> Iterator[FuzzedWorker]:
    """Its files are closed after the block."""
    worker = FuzzedWorker(pages)
    yield worker
    worker.reader.close()
