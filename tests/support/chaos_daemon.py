"""What `Chaos` notes for the next daemon, knows from outside, and asks of a start."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from stepwarden.core.clocks import Cause
from stepwarden.core.lifecycle import ENDING, State
from stepwarden.core.memory import Kept, keep, recall
from stepwarden.core.progress_seen import ProgressSeen
from stepwarden.core.resume import Found
from stepwarden.core.worker import WorkerState


@dataclass(frozen=True, slots=True)
class Death:
    """When, and what the policy said then about how many are kept in mind."""

    at: float
    limit: int
    within: float


@dataclass(slots=True)
class Known:
    """What the model keeps of one suspicion: when it came, and what window it had then."""

    since: float
    window: float


@dataclass(slots=True)
class Outside:
    """What the edge tells of a life beside its ranks.

    `leased`: ranks that held a lease when the daemon of today began; it may hear of it or not.
    """

    held: str = ""
    shut: str = ""
    began_at: float | None = None
    probe_ok: bool = False
    progress: ProgressSeen | None = None
    idle: bool = False
    leased: frozenset[str] = frozenset()


class Modelled(Protocol):
    """What a note holds of the model, next to what the core wrote."""

    state: WorkerState
    wanted: bool
    given_up: bool
    died: bool
    streak: int
    deaths: list[Death]
    first_ready: float | None


@dataclass(frozen=True, slots=True)
class Note:
    """One note in the store, and what the model knew at that time."""

    body: str
    wanted: bool
    given_up: bool
    died: bool
    streak: int
    deaths: Sequence[Death]
    first_ready: float | None

    def kept(self) -> Kept:
        """As the next daemon reads it."""
        told = recall(json.loads(self.body))
        assert told is not None
        return told


@dataclass(slots=True)
class Notes:
    """The newest note, and the one before it."""

    last: list[Note] = field(default_factory=list)

    def write(self, world: Modelled) -> None:
        """Note the state, where anything lasting has changed."""
        body = json.dumps(keep(world.state))
        if not self.last or self.last[-1].body != body:
            note = Note(
                body,
                world.wanted,
                world.given_up,
                world.died,
                world.streak,
                tuple(world.deaths),
                world.first_ready,
            )
            self.last = [*self.last[-1:], note]


def check_resumed(
    state: WorkerState, kept: Kept, found: Found, *, lost: bool, younger: bool
) -> None:
    """What must hold of a worker that a daemon has just gone on with.

    `younger`: the life that was found is younger than the note.
    """
    assert (state.deaths, state.false_alarms) == (kept.deaths, kept.false_alarms)
    assert state.ledger == kept.ledger
    assert state.incarnation >= kept.incarnation
    assert not state.suspicions
    if not lost:
        assert state.wish == kept.wish
    if state.lifecycle is State.ADOPTED:
        assert found is Found.LIFE
    elif found is not Found.NOTHING:
        assert state.lifecycle in ENDING, "something is left of it, and it is not ended"
    else:
        assert state.lifecycle not in ENDING, "it waits for the end of nothing"
    if found is Found.LIFE and (younger or (not lost and kept.lifecycle in ALIVE)):
        assert state.lifecycle is State.ADOPTED, "a life that went on is not taken over"


def stays_failed(kept: Kept) -> bool:
    """FAILED outlives the daemon, but for what waits for its platform or for its last process."""
    return kept.lifecycle is State.FAILED and kept.cause not in {Cause.PLATFORM, "unkillable"}


ALIVE = frozenset({State.STARTING, State.HEALTHY, State.UNHEALTHY, State.ADOPTED})
