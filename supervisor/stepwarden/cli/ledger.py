"""`stepwarden ledger`: was it right? Each alarm and death of the history, scored.

The history is that of `stepwarden events`: of the daemon, or of its state directory without one.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any

from stepwarden.cli import events
from stepwarden.cli.client import add_connection_arguments
from stepwarden.cli.output import complain
from stepwarden.cli.since import add_since_argument
from stepwarden.cli.texts import as_json, plain, table
from stepwarden.core.event import Event, Kind
from stepwarden.core.ledger import LearnedChange, LedgerRow, learned_change, rows
from stepwarden.core.scores import Score, Scorebook
from stepwarden.errors import ExitCode, UnreachableError

KINDS = (
    Kind.TRANSITION,
    Kind.SUSPICION,
    Kind.FALSE_ALARM,
    Kind.SHADOW_ALARM,
    Kind.SHADOW_DEATH,
    Kind.SHADOW_CLEARED,
)
WIDTH = 120
_HEADER = (
    "WHAT",
    "CAUSE",
    "DIAGNOSIS",
    "RULE",
    "CONFIRMED",
    "FALSE",
    "UNDECIDED",
    "PENDING",
    "PRECISION",
    "DETECTED",
    "RECOVERED",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `ledger`."""
    parser.add_argument("--worker", default="", metavar="NAME", help="of this worker only")
    add_since_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    events.add_state_directory_argument(parser)
    parser.set_defaults(follow=False, kind=list(KINDS), limit=events.MAX_LIMIT)
    add_connection_arguments(parser)


def run(options: argparse.Namespace) -> ExitCode:
    """Print the ledger of the past."""
    past = _past(options)
    if len(past) >= events.MAX_LIMIT:
        complain(f"stepwarden: only the newest {events.MAX_LIMIT} events are scored")
    scores = list(_scores(past))
    found, change = rows(scores), learned_change(scores)
    if options.json:
        print(as_json(_document(found, change)))
    else:
        print("\n".join(_lines(found, change)))
    return ExitCode.OK


def _past(options: argparse.Namespace) -> list[Any]:
    try:
        return list(events.from_daemon(options))
    except UnreachableError as error:
        return events.from_disk(options, error)


def _scores(past: Iterable[Any]) -> Iterator[Score]:
    book = Scorebook()
    for message in past:
        yield from book.take(_event(message))
    yield from book.pending()


def _event(message: Any) -> Event:
    return Event(
        Kind(message.kind),
        message.sentence,
        message.worker,
        message.incarnation,
        message.from_state,
        message.to_state,
        message.cause,
        message.rank,
        json.loads(message.data_json or "{}"),
    )


def _document(found: Iterable[LedgerRow], change: LearnedChange | None) -> dict[str, Any]:
    return {
        "rows": [{**asdict(row), "precision": row.precision} for row in found],
        "learn_on": None if change is None else asdict(change),
    }


def _lines(found: tuple[LedgerRow, ...], change: LearnedChange | None) -> Iterator[str]:
    if not found:
        yield "no alarm and no verdict of death so far"
        return
    yield from table(_HEADER, [_cells(row) for row in found], WIDTH)
    if change is not None:
        yield ""
        yield _sentence(change)


def _cells(row: LedgerRow) -> tuple[str, ...]:
    counts = (row.confirmed, row.false, row.undecided, row.pending)
    return (
        row.scored.value,
        plain(row.cause),
        plain(row.diagnosis) or "-",
        plain(row.rule),
        *map(str, counts),
        "-" if row.precision is None else f"{100 * row.precision:.0f} %",
        _seconds(row.detected),
        _seconds(row.recovered),
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}s"


def _sentence(change: LearnedChange) -> str:
    sooner = "" if change.sooner is None else f", {change.sooner:.3g}s sooner in the median"
    return (
        f"learn: on would have raised {change.alarms_confirmed} alarms that were confirmed{sooner},"
        f" and {change.alarms_false} false ones; of its deaths {change.deaths_confirmed} were"
        f" confirmed and {change.deaths_false} would have been false"
    )
