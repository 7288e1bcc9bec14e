"""`stepwarden events`: what happened, and with --follow what happens."""

from __future__ import annotations

import argparse
import json
from typing import Any

from stepwarden.cli.client import add_connection_arguments, connect
from stepwarden.cli.texts import as_json, message_dict, plain
from stepwarden.errors import ExitCode, UnreachableError

DEFAULT_LIMIT = 1000
MAX_LIMIT = 100_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `events`."""
    parser.add_argument("--follow", action="store_true", help="go on with new events")
    parser.add_argument("--worker", default="", metavar="NAME", help="of this worker only")
    parser.add_argument(
        "--limit",
        type=_limit,
        default=DEFAULT_LIMIT,
        metavar="N",
        help=f"the newest N past events, 1 to {MAX_LIMIT} (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    add_connection_arguments(parser)


def run(options: argparse.Namespace) -> ExitCode:
    """Print past events, and new ones until the daemon or the user ends it."""
    show = json_line if options.json else text_line
    with connect(options) as client:
        request = client.pb.WatchEventsRequest(
            follow=options.follow, worker=options.worker, limit=options.limit
        )
        if options.follow:
            # An endless stream has no limit of its own: first see that somebody answers at all.
            client.call("ListWorkers", client.pb.ListWorkersRequest())
        for event in client.stream("WatchEvents", request, endless=options.follow):
            print(show(event), flush=options.follow)
    if options.follow:
        raise UnreachableError("the daemon has stopped")
    return ExitCode.OK


def json_line(event: Any) -> str:
    """One event as one JSON object; `data` holds the numbers."""
    found = message_dict(event)
    found["data"] = json.loads(found.pop("data_json") or "{}")
    return as_json(found, indent=None)


def text_line(event: Any) -> str:
    """One event as one line for people."""
    change = f"{event.from_state} -> {event.to_state}" if event.to_state else event.kind
    cause = f"({event.cause})" if event.cause else ""
    rank = f"rank {event.rank}:" if event.rank else ""
    parts = (event.time, event.worker or "-", change, cause, rank, event.sentence)
    return "  ".join(plain(part) for part in parts if part)


def _limit(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= number <= MAX_LIMIT:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to {MAX_LIMIT}")
    return number
