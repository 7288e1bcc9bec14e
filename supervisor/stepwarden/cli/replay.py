"""`stepwarden replay`: judge again what was recorded, and say what other rules would change."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from stepwarden.cli.arguments import path as path_argument
from stepwarden.config import load
from stepwarden.core.budget import SHIPPED
from stepwarden.core.deadline import apart, elapsed
from stepwarden.core.policy import WorkerPolicy
from stepwarden.core.sentences import seconds
from stepwarden.errors import ExitCode, UnknownWorkerError, UsageError
from stepwarden.naming import counted, unknown
from stepwarden.replay.compare import Difference, Mark, Sort, differences, marks
from stepwarden.replay.files import files_of, records_of
from stepwarden.replay.lines import Head, Record
from stepwarden.replay.play import Played, play
from stepwarden.replay.traces import load_trace, play_trace

MOST_UNLIKE = 10
"""So many differences from the recording itself are printed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `replay`."""
    parser.add_argument(
        "recording",
        type=path_argument,
        metavar="RECORDING",
        help="a state directory, its recording directory, one file of it, or a step trace (CSV)",
    )
    parser.add_argument(
        "--config", type=path_argument, metavar="FILE", help="judge by the rules of this file too"
    )
    parser.add_argument(
        "--worker", metavar="NAME", help="this worker only; of a trace: whose rules"
    )
    parser.add_argument(
        "--backend",
        metavar="NAME",
        help="of a trace without --config: the shipped rules of gpu or cpu",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def run(options: argparse.Namespace) -> ExitCode:
    """0; 5 where the recording's own rules do not give what was recorded."""
    trace = options.recording.suffix == ".csv"
    return _trace(options) if trace else _recording(options)


def _recording(options: argparse.Namespace) -> ExitCode:
    if options.backend:
        raise UsageError("--backend is for a step trace (a .csv file); use --config FILE here")
    policies = _policies(options)
    seen = _Seen(options.worker)
    own, other = play(seen.of(records_of(files_of(options.recording))), policies)
    if options.worker and options.worker not in seen.workers:
        raise UnknownWorkerError(unknown("worker", options.worker, sorted(seen.workers)))
    told = _Told(seen, own, other)
    print(json.dumps(told.as_json(), indent=2) if options.json else "\n".join(told.lines()))
    return ExitCode.ACTION_FAILED if own.unlike else ExitCode.OK


def _policies(options: argparse.Namespace) -> dict[str, WorkerPolicy] | None:
    if options.config is None:
        return None
    return {name: worker.policy for name, worker in load(options.config).workers.items()}


class _Seen:
    """Lets the records of the wanted worker through, and counts."""

    def __init__(self, wanted: str | None) -> None:
        self._wanted = wanted
        self.workers: set[str] = set()
        self.runs: set[str] = set()

    def of(self, records: Iterable[Record]) -> Iterator[Record]:
        """The records that count."""
        for record in records:
            if isinstance(record, Head):
                self.runs.add(record.run)
            else:
                self.workers.add(record.worker)
                if self._wanted not in (None, record.worker):
                    continue
            yield record


@dataclass(frozen=True, slots=True)
class _Told:
    """What a replay has to say."""

    seen: _Seen
    own: Played
    other: Played | None

    def lines(self) -> Iterator[str]:
        """For people."""
        before = marks(self.own.happened)
        yield (
            f"{counted(len(self.seen.workers), 'worker')}, {counted(self.own.calls, 'call')} of"
            f" {counted(len(self.seen.runs), 'daemon')}: as recorded {_counts(before)}"
        )
        if self.own.unlike:
            yield f"NOT as recorded in {counted(len(self.own.unlike), 'place')}:"
            yield from (f"  {text}" for text in self.own.unlike[:MOST_UNLIKE])
        else:
            yield "the same transitions as recorded"
        if self.other is None:
            yield from (f"  {_mark_line(mark)}" for mark in before)
            return
        after = marks(self.other.happened)
        found = differences(before, after)
        yield f"by the rules of the file: {_counts(after)}"
        yield from (_difference_line(one) for one in found)
        if not found:
            yield "nothing changes"

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        before = marks(self.own.happened)
        after = None if self.other is None else marks(self.other.happened)
        return {
            "workers": sorted(self.seen.workers),
            "calls": self.own.calls,
            "as_recorded": not self.own.unlike,
            "unlike": self.own.unlike,
            "recorded": [_mark_json(mark) for mark in before],
            "replayed": None if after is None else [_mark_json(mark) for mark in after],
            "changes": []
            if after is None
            else [_change_json(one) for one in differences(before, after)],
        }


def _time(mark: Mark) -> str:
    """When that was, with its zone."""
    if mark.wall is None:
        return f"after {seconds(mark.at)}"
    instant = datetime.fromtimestamp(mark.wall, UTC).astimezone()
    return instant.isoformat(timespec="milliseconds")


def _mark_line(mark: Mark) -> str:
    return f"{_time(mark)}  {mark.worker}: {mark.sort}: {mark.sentence}"


def _difference_line(one: Difference) -> str:
    if one.after is None:
        assert one.before is not None
        return f"- {_mark_line(one.before)}"
    if one.before is None:
        return f"+ {_mark_line(one.after)}"
    later = "later" if one.after.at > one.before.at else "earlier"
    text = f"{seconds(apart(one.before.at, one.after.at))} {later} than recorded"
    return f"~ {_mark_line(one.after)} ({text})"


def _mark_json(mark: Mark) -> dict[str, Any]:
    return {**asdict(mark), "sort": mark.sort.value, "time": _time(mark)}


def _change_json(one: Difference) -> dict[str, Any]:
    return {
        "before": None if one.before is None else _mark_json(one.before),
        "after": None if one.after is None else _mark_json(one.after),
    }


def _counts(found: Sequence[Mark]) -> str:
    each = [counted(sum(mark.sort is sort for mark in found), sort.value) for sort in Sort]
    return ", ".join(each)


def _trace(options: argparse.Namespace) -> ExitCode:
    steps = load_trace(options.recording)
    policy = _trace_policy(options)
    first = steps[0].begin
    played = play_trace([replace(step, begin=elapsed(first, step.begin)) for step in steps], policy)
    found = marks(played.happened)
    if options.json:
        told = {"steps": len(steps), "replayed": [_mark_json(mark) for mark in found]}
        print(json.dumps(told, indent=2))
        return ExitCode.OK
    print(f"{counted(len(steps), 'step')} by the rules of {policy.name}: {_counts(found)}")
    for mark in found:
        print(f"  {_mark_line(mark)}")
    return ExitCode.OK


def _trace_policy(options: argparse.Namespace) -> WorkerPolicy:
    """Whose rules judge a trace."""
    policies = _policies(options)
    if policies is None:
        backend = options.backend or "gpu"
        if backend not in SHIPPED:
            raise UsageError(unknown("backend", backend, list(SHIPPED)))
        if options.worker:
            raise UsageError("--worker needs --config FILE, which says what its rules are")
        return WorkerPolicy(f"backend {backend}", backend=backend, step=SHIPPED[backend])
    if options.worker is None and len(policies) != 1:
        names = ", ".join(sorted(policies))
        raise UsageError(f"the file has {len(policies)} workers; say --worker NAME, of {names}")
    name = options.worker or next(iter(policies))
    if name not in policies:
        raise UnknownWorkerError(unknown("worker", name, list(policies)))
    return policies[name]
