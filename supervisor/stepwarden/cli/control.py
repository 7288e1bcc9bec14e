"""`stepwarden start|stop|restart NAME`: tell the daemon, and wait until it has come about."""

from __future__ import annotations

import argparse

from stepwarden.cli.client import add_connection_arguments, connect, seconds_not_negative
from stepwarden.cli.texts import plain
from stepwarden.errors import ExitCode

DEFAULT_WAIT_SECONDS = 120.0
_METHODS = {"start": "StartWorker", "stop": "StopWorker", "restart": "RestartWorker"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `start`, `stop` and `restart`."""
    parser.add_argument("name", metavar="NAME", help="the worker")
    waiting = parser.add_mutually_exclusive_group()
    waiting.add_argument(
        "--wait",
        type=seconds_not_negative,
        default=DEFAULT_WAIT_SECONDS,
        metavar="SECONDS",
        help="how long to wait until it has come about (default: %(default)g)",
    )
    waiting.add_argument(
        "--no-wait",
        dest="wait",
        action="store_const",
        const=None,
        help="return as soon as the daemon has taken the command",
    )
    add_connection_arguments(parser)


def run(options: argparse.Namespace) -> ExitCode:
    """Give the command and print what came of it."""
    with connect(options) as client:
        request = client.pb.WorkerCommandRequest(name=options.name, wait_seconds=options.wait)
        # A wait is added to the limit of the command, so see first that somebody answers at all.
        client.call("GetWorker", client.pb.GetWorkerRequest(name=options.name))
        answer = client.call(_METHODS[options.command], request, extra=options.wait or 0.0)
    print(plain(answer.sentence))
    return ExitCode.OK
