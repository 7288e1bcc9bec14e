"""Step traces of others as a recording: one row a step, as CSV with a header.

    begin          when it began, in seconds from any instant
    seconds        how long it took; empty for one that never ended
    num_seqs       sequences in it; may be missing
    num_tokens     scheduled tokens; may be missing
    cpu_percent    of one core while it ran; may be missing: unknown

Common other names of the columns are known. Between steps the worker is idle, and its beats come.
"""

from __future__ import annotations

import csv
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepwarden.core.awareness import Awareness
from stepwarden.core.deadline import Deadline, earliest, elapsed
from stepwarden.core.evidence import CpuSample, ProcessId, RankEvidence, Step, WorkerEvidence
from stepwarden.core.lifecycle import State
from stepwarden.core.policy import WorkerPolicy
from stepwarden.core.turn import SHORTEST_REST, advance, clocks_of, next_wake
from stepwarden.core.worker import WorkerState
from stepwarden.replay.codec import UnreadableError, reading
from stepwarden.replay.play import Happened, Played

COLUMNS: Mapping[str, tuple[str, ...]] = {
    "begin": ("begin", "t_begin", "start", "t"),
    "seconds": ("seconds", "duration", "duration_s", "step_seconds"),
    "num_seqs": ("num_seqs", "batch", "batch_size"),
    "num_tokens": ("num_tokens", "tokens"),
    "cpu_percent": ("cpu_percent",),
}
_NEEDED = ("begin", "seconds")
_RANK = "0"
_PROCESS = ProcessId(2, 1)


@dataclass(frozen=True, slots=True)
class TracedStep:
    """One row. `seconds` and the rest None where the trace does not say."""

    begin: float
    seconds: float | None
    num_seqs: int | None = None
    num_tokens: int | None = None
    cpu_percent: float | None = None

    @property
    def end(self) -> float:
        """When it ended; infinity for one that never did."""
        return math.inf if self.seconds is None else self.begin + self.seconds


def load_trace(path: Path) -> list[TracedStep]:
    """The steps of a file, by begin. `UnreadableError` names the line and what is accepted."""
    with reading(path), path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file)
        columns = _columns(next(reader, []), path)
        steps = [
            _row(row, columns, f"{path}: line {reader.line_num}") for row in reader if any(row)
        ]
    if not steps:
        raise UnreadableError(f"{path}: there is no step in it")
    return sorted(steps, key=lambda step: step.begin)


def _columns(header: Sequence[str], path: Path) -> dict[str, int]:
    names = [name.strip().lower() for name in header]
    found = {
        column: names.index(name)
        for column, known in COLUMNS.items()
        for name in known[::-1]
        if name in names
    }
    missing = [column for column in _NEEDED if column not in found]
    if missing:
        accepted = "; ".join(f"{column}: {' or '.join(COLUMNS[column])}" for column in missing)
        text = f"its first line has no column for {' and '.join(missing)} (accepted: {accepted})"
        raise UnreadableError(f"{path}: {text}")
    return found


def _row(row: Sequence[str], columns: Mapping[str, int], where: str) -> TracedStep:
    cells = {name: row[at].strip() if at < len(row) else "" for name, at in columns.items()}
    begin = _number(cells, "begin", where)
    if begin is None:
        raise UnreadableError(f"{where}: begin is empty; a number of seconds is needed")
    return TracedStep(
        begin,
        _number(cells, "seconds", where),
        _count(cells, "num_seqs", where),
        _count(cells, "num_tokens", where),
        _number(cells, "cpu_percent", where),
    )


def _number(cells: Mapping[str, str], name: str, where: str) -> float | None:
    text = cells.get(name, "")
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and (number >= 0.0 or name == "begin")):
        raise UnreadableError(f"{where}: {name} is {text!r}, not a finite number from 0 on")
    return number


def _count(cells: Mapping[str, str], name: str, where: str) -> int | None:
    number = _number(cells, name, where)
    return None if number is None else int(number)


def play_trace(steps: Sequence[TracedStep], policy: WorkerPolicy) -> Played:
    """What comes of a trace by these rules, the loop turning as the daemon's does.

    The worker is ready from the first step on. A death ends its life; the next one is there with
    the next step that begins.
    """
    return _TracedWorker(steps, policy).play()


class _TracedWorker:
    """One worker of one rank that runs the steps of a trace."""

    def __init__(self, steps: Sequence[TracedStep], policy: WorkerPolicy) -> None:
        self._coming = deque(enumerate(steps, start=1))
        self._policy = policy
        self._open: list[tuple[int, TracedStep]] = []
        self._begun = 0
        self._now = self._first = steps[0].begin
        self._state = self._alive(1)
        self._played = Played()

    def play(self) -> Played:
        """Turn until no step is left."""
        self._take_steps()
        while self._open or self._coming:
            wake = self._turn()
            if self._state.lifecycle is State.DEAD:
                self._live_again()
            else:
                self._now = self._next_instant(wake)
                self._take_steps()
        self._turn()
        return self._played

    def _turn(self) -> Deadline:
        evidence, now = self._evidence(), self._now
        clocks = clocks_of(self._state, self._policy, evidence, Awareness(), now)
        outcome = advance(self._state, self._policy, evidence, Awareness(), now)
        self._state = outcome.state
        self._played.calls += 1
        self._played.happened += [Happened(now, event) for event in outcome.events]
        return next_wake(self._state, self._policy, clocks, Awareness(), now)

    def _take_steps(self) -> None:
        """Bring what is open up to date."""
        while self._coming and self._coming[0][1].begin <= self._now:
            self._begun, step = self._coming.popleft()
            self._open.append((self._begun, step))
        self._open = [(number, step) for number, step in self._open if step.end > self._now]

    def _next_instant(self, wake: Deadline) -> float:
        """When the loop turns next. Time in which nothing runs is passed over."""
        ends = [step.end for _, step in self._open if step.end < math.inf]
        begins = [self._coming[0][1].begin] if self._coming else []
        if not self._open and begins:
            return max(begins[0], self._now)
        due = earliest(wake.not_before(self._now + SHORTEST_REST), *map(Deadline, ends + begins))
        return self._now if due.at is None else max(due.at, self._now)

    def _live_again(self) -> None:
        self._open = []
        if self._coming:
            self._now = max(self._now, self._coming[0][1].begin)
            self._state = self._alive(self._state.incarnation + 1)
            self._take_steps()

    def _alive(self, incarnation: int) -> WorkerState:
        return WorkerState(
            self._policy.name,
            State.HEALTHY,
            since=self._now,
            incarnation=incarnation,
            spawned_at=self._now,
            ready_at=self._now,
            came_up=frozenset({_RANK}),
        )

    def _evidence(self) -> WorkerEvidence:
        steps = tuple(
            Step(number, step.begin, step.num_seqs, step.num_tokens, "decode")
            for number, step in self._open
        )
        rank = RankEvidence(
            attached_at=self._first,
            process=_PROCESS,
            phase="decode" if steps else "idle",
            beat_at=self._now,
            moved_at=self._now,
            page_readable=True,
            steps=steps,
            steps_begun=self._begun,
            steps_ended=self._begun - len(steps),
            cpu=_cpu(self._open[0][1], self._now) if self._open else None,
        )
        return WorkerEvidence(ranks={_RANK: rank}, main=_PROCESS)


def _cpu(step: TracedStep, now: float) -> CpuSample | None:
    """What it had used since it began; None where the trace does not say."""
    if step.cpu_percent is None:
        return None
    return CpuSample(now, {_PROCESS: elapsed(step.begin, now) * step.cpu_percent / 100.0}, "R")
