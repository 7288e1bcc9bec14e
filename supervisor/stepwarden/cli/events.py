"""`stepwarden events`: what happened, and with --follow what happens.

Without a daemon the past is read from the state directory, where nothing is made or changed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stepwarden.cli.arguments import path as path_argument
from stepwarden.cli.client import add_connection_arguments, connect, state_directory
from stepwarden.cli.output import complain
from stepwarden.cli.since import add_since_argument
from stepwarden.cli.texts import as_json, event_dict, plain
from stepwarden.core.event import Kind
from stepwarden.errors import ExitCode, RefusedError, UnreachableError
from stepwarden.naming import unknown

DEFAULT_LIMIT = 1000
MAX_LIMIT = 100_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `events`."""
    parser.add_argument("--follow", action="store_true", help="go on with new events")
    parser.add_argument("--worker", default="", metavar="NAME", help="of this worker only")
    parser.add_argument(
        "--kind",
        type=_kinds,
        action="extend",
        default=[],
        metavar="KIND[,KIND]",
        help=f"of these kinds only: {', '.join(Kind)}",
    )
    add_since_argument(parser)
    parser.add_argument(
        "--limit",
        type=_limit,
        metavar="N",
        help=f"the newest N past events, 1 to {MAX_LIMIT} (default: {DEFAULT_LIMIT}; with --since,"
        f" {MAX_LIMIT})",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    add_state_directory_argument(parser)
    add_connection_arguments(parser)


def add_state_directory_argument(parser: argparse.ArgumentParser) -> None:
    """Where `from_disk` reads."""
    parser.add_argument(
        "--state-dir",
        type=path_argument,
        metavar="DIR",
        help="where to read while no daemon answers (default: the one of --config)",
    )


def run(options: argparse.Namespace) -> ExitCode:
    """Print past events, and new ones until the daemon or the user ends it."""
    show = json_line if options.json else text_line
    shown = 0
    try:
        for event in from_daemon(options):
            print(show(event), flush=options.follow)
            shown += 1
    except UnreachableError as error:
        if options.follow or shown:
            raise
        for event in from_disk(options, error):
            print(show(event))
        return ExitCode.OK
    if options.follow:
        raise UnreachableError("the daemon has stopped")
    return ExitCode.OK


def from_daemon(options: argparse.Namespace) -> Iterator[Any]:
    """The events that the options ask for, the oldest first. UnreachableError: nobody answers."""
    with connect(options) as client:
        request = client.pb.WatchEventsRequest(
            follow=options.follow,
            worker=options.worker,
            limit=_most(options),
            kinds=options.kind,
            since_unix_seconds=options.since,
        )
        if options.follow:
            # An endless stream has no limit of its own: first see that somebody answers at all.
            client.call("ListWorkers", client.pb.ListWorkersRequest())
        yield from client.stream("WatchEvents", request, endless=options.follow)


def _most(options: argparse.Namespace) -> int:
    """How many past events are shown at most."""
    if options.limit is not None:
        return int(options.limit)
    return MAX_LIMIT if options.since else DEFAULT_LIMIT


def from_disk(options: argparse.Namespace, silent: UnreachableError) -> list[Any]:
    """The past as the state directory has it; `silent` says why nobody could be asked."""
    directory = state_directory(options) if options.state_dir is None else Path(options.state_dir)
    if directory is None:
        raise silent
    from stepwarden.edge.state_history import read_history
    from stepwarden.edge.views import EventFilter, event_message

    try:
        wanted = EventFilter(options.worker, frozenset(options.kind), options.since)
        path, found = read_history(directory, _most(options), wanted)
    except FileNotFoundError as error:
        raise UnreachableError(f"{silent}; and there is no history in {directory}") from error
    except (OSError, ValueError) as error:
        raise RefusedError(f"{silent}; and its history cannot be read: {error}") from error
    complain(f"stepwarden: {silent}; these events are from {path}")
    return [event_message(recorded) for recorded in found]


def json_line(event: Any) -> str:
    """One event as one JSON object; `data` holds the numbers."""
    return as_json(event_dict(event), indent=None)


def text_line(event: Any) -> str:
    """One event as one line for people."""
    change = f"{event.from_state} -> {event.to_state}" if event.to_state else event.kind
    cause = f"({event.cause})" if event.cause else ""
    rank = f"rank {event.rank}" if event.rank else ""
    parts = (event.time, event.worker or "-", change, cause, rank, event.sentence)
    return "  ".join(plain(part) for part in parts if part)


def _kinds(text: str) -> list[str]:
    found = text.split(",")
    for kind in found:
        if kind not in list(Kind):
            raise argparse.ArgumentTypeError(unknown("kind", kind, list(Kind)))
    return found


def _limit(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= number <= MAX_LIMIT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {MAX_LIMIT}")
    return number
