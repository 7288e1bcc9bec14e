"""`stepwarden reload`: have the daemon load its own file again, or say what that would do."""

from __future__ import annotations

import argparse
from typing import Any

from stepwarden.cli.client import add_connection_arguments, connect, seconds_not_negative
from stepwarden.cli.output import complain
from stepwarden.cli.texts import as_json, message_dict, plain
from stepwarden.errors import ExitCode

DEFAULT_WAIT_SECONDS = 120.0
LOAD_SECONDS = 30.0
"""What the daemon gives reading and checking a file."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `reload`."""
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would happen to whom, and do nothing"
    )
    parser.add_argument(
        "--wait",
        type=seconds_not_negative,
        nargs="?",
        const=DEFAULT_WAIT_SECONDS,
        default=None,
        metavar="SECONDS",
        help="wait until all that is started, restarted and removed is (without a number:"
        f" {DEFAULT_WAIT_SECONDS:g})",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    add_connection_arguments(parser)


def run(options: argparse.Namespace) -> ExitCode:
    """Ask the daemon and print what came of it. CONFIG: its file cannot be used."""
    with connect(options) as client:
        request = client.pb.ReloadRequest(dry_run=options.dry_run)
        if options.wait is not None:
            request.wait_seconds = options.wait
        # The limit is for hearing anything at all of the daemon; loading may take its time.
        client.call("ListWorkers", client.pb.ListWorkersRequest())
        answer = client.call("Reload", request, extra=LOAD_SECONDS + (options.wait or 0.0))
    if options.json:
        print(as_json(message_dict(answer)))
    else:
        _print(answer)
    if answer.problems:
        return ExitCode.CONFIG
    return ExitCode.ACTION_FAILED if answer.unsettled else ExitCode.OK


def _print(answer: Any) -> None:
    for change in answer.changes:
        print(f"{plain(change.subject)}: {plain(change.sentence)}")
    for text in (*answer.problems, *answer.warnings):
        complain(plain(text))
    if answer.problems:
        complain(f"stepwarden: {plain(answer.sentence)}")
        return
    print(plain(answer.sentence))
    if answer.unsettled:
        names = ", ".join(map(plain, answer.unsettled))
        complain(f"stepwarden: still under way: {names}")
