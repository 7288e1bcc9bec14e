"""What the admin service shows: plain records that the daemon fills, and their wire form."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from stepwarden_proto.v1 import supervisor_pb2 as pb

from stepwarden.core.event import Event
from stepwarden.edge.learned_views import LearnedView

MAX_SENTENCE_CHARACTERS = 1000
"""Longer sentences are cut in lists, so that a list of thousands of workers stays sendable."""

MAX_DETAIL_CHARACTERS = 100
"""Likewise what each rank tells of itself."""

MAX_WHOLE_RANKS = 100
"""A worker of more ranks is shown with their details cut even when it is asked for alone."""


@dataclass(frozen=True, slots=True)
class RankView:
    """One rank as shown. Times in seconds; None: unknown or not there. `step` 0: idle.

    `steps_unrecorded`, `beats_refused` and `stamps_clamped` count what was not taken as it came.
    """

    name: str
    pid: int = 0
    phase: str = "unknown"
    step: int = 0
    num_seqs: int | None = None
    num_tokens: int | None = None
    step_age: float | None = None
    budget: float | None = None
    budget_left: float | None = None
    beat_age: float | None = None
    cpu_percent: float | None = None
    steps_ended: int = 0
    rss_bytes: int | None = None
    in_flight: int = 0
    requests_unfinished: int | None = None
    loop_turns: int | None = None
    loop_age: float | None = None
    steps_unrecorded: int = 0
    beats_refused: int = 0
    stamps_clamped: int = 0
    agent_version: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker as shown. Times in seconds; None: unknown or not there. `pid` 0: no process.

    `state` and `cause` by name; `sentence` is the last verdict. `restarts_used` counts deaths
    against `restarts_limit`. `leftover_pids` are processes that could not be ended.
    `last_death` says why it died last, in whatever state it is now. `runner`, `unit` and `cgroup`
    say how its present life is run. `held`: what its start waits for. `probe`: the newest answer of
    its ready probe, until it is ready. `output_directory`: where captured output lies.
    `restart_needed`: what its process does not have as the file says. `removed`: the file does not
    name it any more. `mode` enforce or observe; `would_be_dead`: only observing spares it now.
    `diagnosis`, `grounds`, `diagnosed_rank`: why it is late, ended or idle; "".
    `learn`: off, observe or on; `learned`: what is usual for its ranks.
    """

    name: str
    state: str
    cause: str = ""
    sentence: str = ""
    incarnation: str = ""
    pid: int = 0
    state_age: float = 0.0
    uptime: float = 0.0
    restarts_used: int = 0
    restarts_limit: int = 0
    last_exit: str = ""
    last_death: str = ""
    backend: str = ""
    ranks: tuple[RankView, ...] = ()
    startup_left: float | None = None
    restart_in: float | None = None
    agent_silent: bool = False
    leftover_pids: tuple[int, ...] = ()
    false_alarms: int = 0
    deaths: int = 0
    windows_granted: int = 0
    runner: str = ""
    unit: str = ""
    cgroup: str = ""
    group: str = ""
    held: str = ""
    probe: str = ""
    output_directory: Path | None = None
    restart_needed: str = ""
    removed: bool = False
    mode: str = "enforce"
    would_be_dead: bool = False
    diagnosis: str = ""
    grounds: str = ""
    diagnosed_rank: str = ""
    learn: str = ""
    learned: tuple[LearnedView, ...] = ()


@dataclass(frozen=True, slots=True)
class DoubtView:
    """How much the daemon doubts itself (0 to 8), what for, and what its governor holds up."""

    score: int = 0
    reason: str = ""
    governor: str = ""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What one step may take: budget and hard cap in seconds, and the arithmetic in words."""

    budget: float
    hard_cap: float
    arithmetic: str


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event with the id and the times it got. `time` is RFC 3339 with a zone, for people."""

    id: int
    time: str
    monotonic: float
    event: Event


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events are asked for. "", no kinds, 0.0: of all workers, of every kind, of any time.

    `since` is wall time in seconds since 1970, for people: clocks are set, so nothing is skipped
    on the strength of the order of times.
    """

    worker: str = ""
    kinds: frozenset[str] = frozenset()
    since: float = 0.0

    def wants(self, recorded: RecordedEvent) -> bool:
        """True where such an event was asked for."""
        event = recorded.event
        mine = self.worker in ("", event.worker)
        of_kind = not self.kinds or str(event.kind) in self.kinds
        return mine and of_kind and self.young_enough(recorded.time)

    def young_enough(self, time: str) -> bool:
        """`time`, in RFC 3339, is not before `since`; so is one that cannot be read."""
        if not self.since:
            return True
        try:
            return datetime.fromisoformat(time).timestamp() >= self.since
        except (ValueError, OverflowError, OSError):
            return True


EVERYTHING = EventFilter()


def data_json(event: Event) -> str:
    """The numbers of an event as one JSON object; what JSON has no number for becomes null."""
    clean = {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in event.data.items()
    }
    return json.dumps(clean, ensure_ascii=False)


def rank_message(view: RankView, trimmed: bool = False) -> pb.Rank:
    """Wire form of one rank; -1 stands for an unknown count. `trimmed` cuts a long detail."""
    return pb.Rank(
        name=view.name,
        pid=view.pid,
        phase=view.phase,
        step=view.step,
        num_seqs=-1 if view.num_seqs is None else view.num_seqs,
        num_tokens=-1 if view.num_tokens is None else view.num_tokens,
        step_age_seconds=view.step_age,
        budget_seconds=view.budget,
        budget_left_seconds=view.budget_left,
        beat_age_seconds=view.beat_age,
        cpu_percent=view.cpu_percent,
        steps_ended=view.steps_ended,
        rss_bytes=view.rss_bytes,
        in_flight=view.in_flight,
        requests_unfinished=view.requests_unfinished,
        loop_turns=view.loop_turns,
        loop_age_seconds=view.loop_age,
        steps_unrecorded=view.steps_unrecorded,
        beats_refused=view.beats_refused,
        stamps_clamped=view.stamps_clamped,
        agent_version=view.agent_version,
        detail=_cut(view.detail, MAX_DETAIL_CHARACTERS) if trimmed else view.detail,
    )


def worker_message(
    view: WorkerView, trimmed: bool = False, output: Sequence[str] = ()
) -> pb.Worker:
    """Wire form of one worker; `trimmed` cuts long texts. `output`: the last lines it printed."""
    cut_ranks = trimmed or len(view.ranks) > MAX_WHOLE_RANKS
    return pb.Worker(
        name=view.name,
        state=view.state,
        cause=view.cause,
        sentence=_cut(view.sentence) if trimmed else view.sentence,
        incarnation=view.incarnation,
        pid=view.pid,
        state_age_seconds=view.state_age,
        uptime_seconds=view.uptime,
        restarts_used=view.restarts_used,
        restarts_limit=view.restarts_limit,
        last_exit=view.last_exit,
        last_death=_cut(view.last_death) if trimmed else view.last_death,
        backend=view.backend,
        ranks=[rank_message(rank, cut_ranks) for rank in view.ranks],
        startup_left_seconds=view.startup_left,
        restart_in_seconds=view.restart_in,
        agent_silent=view.agent_silent,
        leftover_pids=view.leftover_pids,
        false_alarms=view.false_alarms,
        deaths=view.deaths,
        windows_granted=view.windows_granted,
        runner=view.runner,
        unit=view.unit,
        cgroup=view.cgroup,
        group=view.group,
        held=_cut(view.held) if trimmed else view.held,
        probe=_cut(view.probe) if trimmed else view.probe,
        output=output,
        restart_needed=view.restart_needed,
        removed=view.removed,
        mode=view.mode,
        would_be_dead=view.would_be_dead,
        diagnosis=view.diagnosis,
        grounds=_cut(view.grounds) if trimmed else view.grounds,
        diagnosed_rank=view.diagnosed_rank,
        learn=view.learn,
    )


def _cut(text: str, most: int = MAX_SENTENCE_CHARACTERS) -> str:
    return text if len(text) <= most else text[:most] + " ..."


def event_message(recorded: RecordedEvent) -> pb.Event:
    """Wire form of one event."""
    event = recorded.event
    return pb.Event(
        id=recorded.id,
        time=recorded.time,
        monotonic=recorded.monotonic,
        worker=event.worker,
        incarnation=event.incarnation,
        kind=str(event.kind),
        from_state=event.from_state,
        to_state=event.to_state,
        cause=event.cause,
        rank=event.rank,
        sentence=event.sentence,
        data_json=data_json(event) if event.data else "",
    )
