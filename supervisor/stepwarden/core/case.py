"""All that a diagnosis of one late thing rests on, and what follows from it alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stepwarden.core.clocks import WORKER, Cause, RunningClock
from stepwarden.core.evidence import RankEvidence
from stepwarden.core.facts import ProcessFacts, RankFacts
from stepwarden.core.moves import Moves
from stepwarden.core.sentences import rank_name
from stepwarden.core.stacks import Place
from stepwarden.core.verdict import Activity, Measurement

Peers = Mapping[str, RankEvidence]


@dataclass(frozen=True, slots=True)
class Case:
    """One late thing. `rank`: the evidence of its subject, None where it belongs to no rank.

    `peers`: every live rank of the worker by name, the subject included. `facts`: the newest
    reading of it, where it is young enough to speak; `moves`: what moved up to there.
    `measurement`: its CPU over the window so far. `lost`: how long our own loop stood still since
    the window began at `since`. `stacks`: what two looks at its stacks came to.
    """

    clock: RunningClock
    now: float
    since: float
    rank: RankEvidence | None = None
    peers: Peers = field(default_factory=dict)
    facts: RankFacts | None = None
    moves: Moves | None = None
    measurement: Measurement | None = None
    busy_cpu: float = 5.0
    lost: float = 0.0
    stacks: Place = Place.UNKNOWN

    @property
    def main(self) -> ProcessFacts | None:
        """The late rank's own process, as it was read."""
        facts = self.facts
        return None if facts is None else facts.main

    @property
    def state(self) -> str | None:
        """The letter of the rank's own process: of this very turn, or as it was read last."""
        if self.measurement is not None and self.measurement.state is not None:
            return self.measurement.state
        return None if self.main is None else self.main.state

    @property
    def percent(self) -> float | None:
        """CPU in percent of one core, by the two readings or by the samples of the window."""
        if self.moves is not None:
            return self.moves.percent
        return None if self.measurement is None else self.measurement.percent

    @property
    def at_rest(self) -> bool | None:
        """Whether it uses so little CPU that it counts as not working; None: unknown."""
        if self.measurement is not None and self.measurement.activity is Activity.NOT_WORKING:
            return True
        percent = self.percent
        return None if percent is None else percent <= self.busy_cpu

    @property
    def cause(self) -> Cause:
        """Which clock has run out."""
        return self.clock.cause

    @property
    def at_work(self) -> bool:
        """Whether something is in flight: a step, requests, a start, a declared operation."""
        return self.cause is not Cause.HEARTBEAT or (self.rank is not None and self.rank.working)

    @property
    def who(self) -> str:
        """The subject as a sentence names it."""
        return "the worker" if self.clock.subject == WORKER else rank_name(self.clock.subject)

    @property
    def process_words(self) -> str:
        """`process 4711 of rank 0`, as far as the pid is known."""
        main = self.main
        pid = main.process.pid if main is not None else None
        if pid is None and self.rank is not None and self.rank.process is not None:
            pid = self.rank.process.pid
        return f"the process of {self.who}" if pid is None else f"process {pid} of {self.who}"
