"""Makes the case of one late thing, as a diagnosis takes it, from what is odd about it."""

from __future__ import annotations

from collections.abc import Mapping

from stepwarden.core.case import Case
from stepwarden.core.clocks import Cause, RunningClock
from stepwarden.core.deadline import Deadline
from stepwarden.core.evidence import ProcessId, RankEvidence, Step
from stepwarden.core.facts import (
    Pressure,
    ProcessFacts,
    RankFacts,
    Stall,
    ThreadFacts,
    Throttling,
)
from stepwarden.core.moves import moves_between

NOW = 1000.0
SPAN = 10.0
RANK = ProcessId(4711, 1)


def thread(
    cpu: float = 0.0,
    state: str = "S",
    waited: float | None = 0.0,
    faults: int = 0,
    tid: int = RANK.pid,
    wchan: str | None = None,
) -> ThreadFacts:
    """One thread; numbers are totals."""
    return ThreadFacts(tid, f"t{tid}", state, cpu, waited, wchan, faults, 0)


def reading(
    at: float,
    *threads: ThreadFacts,
    io: int | None = 0,
    major: int = 0,
    throttled: float | None = None,
    memory: float = 0.0,
    state: str | None = None,
) -> RankFacts:
    """One reading of a rank of one process; numbers are totals."""
    own = threads or (thread(),)
    process = ProcessFacts(
        RANK,
        "engine",
        own[0].state if state is None else state,
        sum(each.cpu for each in own),
        major,
        io,
        None if io is None else 0,
        own,
        len(own),
    )
    quotas = None if throttled is None else {"/w": Throttling(int(at), int(at / 2), throttled)}
    group = Pressure(memory=Stall(memory, memory), quotas=quotas)
    return RankFacts(at, (process,), group)


def clock(cause: Cause = Cause.STEP, later_ended: int = 0, subject: str = "0") -> RunningClock:
    """A clock that has run out 20 s ago."""
    step = Step(7, NOW - 30.0, 4) if cause is Cause.STEP else None
    return RunningClock(
        subject,
        cause,
        NOW - 30.0,
        10.0,
        Deadline(NOW - 20.0),
        120.0,
        NOW + 90.0,
        "10 s",
        step,
        later_ended,
    )


def rank(
    ticked: float | None = NOW - 0.5, begun: int = 7, ended: int = 6, **odd: object
) -> RankEvidence:
    """A rank with a readable page and, unless `steps` says otherwise, one open step."""
    facts: dict[str, object] = {
        "attached_at": NOW - 500.0,
        "process": RANK,
        "phase": "decode",
        "beat_at": NOW - 1.0,
        "moved_at": NOW - 30.0,
        "stepped_at": NOW - 30.0,
        "page_readable": True,
        "steps": (Step(7, NOW - 30.0, 4),),
        "steps_begun": begun,
        "steps_ended": ended,
        "ticked_at": ticked,
    }
    return RankEvidence(**(facts | odd))  # type: ignore[arg-type]


def case(
    before: RankFacts | None,
    after: RankFacts | None,
    late: RunningClock | None = None,
    who: RankEvidence | None = None,
    peers: Mapping[str, RankEvidence] | None = None,
    **odd: object,
) -> Case:
    """The case of rank 0 whose step 7 is late, unless `late` says otherwise."""
    late = clock() if late is None else late
    who = rank() if who is None and late.subject else who
    known: dict[str, object] = {
        "peers": ({"0": who} if who else {}) if peers is None else peers,
        "facts": after,
        "moves": moves_between(before, after),
    }
    return Case(late, NOW, NOW - 20.0, who, **(known | odd))  # type: ignore[arg-type]
