"""`stepwarden start|stop|restart NAME`: tell the daemon, and wait until it has come about."""

from __future__ import annotations

import argparse
from contextlib import closing

from stepwarden.cli.client import (
    Client,
    add_connection_arguments,
    connect,
    seconds_not_negative,
)
from stepwarden.cli.texts import plain
from stepwarden.errors import ActionFailedError, ExitCode, UnreachableError, UsageError

DEFAULT_WAIT_SECONDS = 120.0
ANSWER = 2.0
"""How long the daemon may take to say how far a start has come, in seconds."""

_ENDED = frozenset({"DEAD", "FAILED", "STOPPED"})
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
    if parser.prog.split()[-1] != "stop":
        parser.add_argument(
            "--ready",
            action="store_true",
            help="wait, within --wait, until it is HEALTHY; a life that ends before is a failure",
        )
    add_connection_arguments(parser)


def run(options: argparse.Namespace) -> ExitCode:
    """Give the command and print what came of it."""
    ready = getattr(options, "ready", False)
    if ready and options.wait is None:
        raise UsageError("--ready waits, and --no-wait does not; give one of them")
    with connect(options) as client:
        request = client.pb.WorkerCommandRequest(name=options.name, wait_seconds=options.wait)
        # A wait is added to the limit of the command, so see first that somebody answers at all.
        client.call("GetWorker", client.pb.GetWorkerRequest(name=options.name))
        last = newest_event(client, options.name) if ready else 0
        wait = options.wait or 0.0
        sentence = client.call(_METHODS[options.command], request, extra=wait).sentence
        if ready:
            sentence = until_ready(client, options.name, last, wait)
    print(plain(sentence))
    return ExitCode.OK


def newest_event(client: Client, name: str) -> int:
    """Id of the newest event of a worker; 0 where there is none."""
    request = client.pb.WatchEventsRequest(worker=name, limit=1)
    return max((event.id for event in client.stream("WatchEvents", request)), default=0)


def until_ready(client: Client, name: str, last: int, wait: float) -> str:
    """Wait until a worker is HEALTHY; what is then to say. `last`: the event before the command."""
    request = client.pb.WatchEventsRequest(worker=name, follow=True)
    worker = client.call("GetWorker", client.pb.GetWorkerRequest(name=name), extra=wait).worker
    if worker.state == "HEALTHY":
        return f"{name} is HEALTHY"
    with closing(client.stream("WatchEvents", request, extra=wait)) as events:
        try:
            for event in events:
                if event.id > last and event.to_state == "HEALTHY":
                    return f"{name} is HEALTHY"
                if event.id > last and event.to_state in _ENDED:
                    raise ActionFailedError(f"{name} is {event.to_state}: {event.sentence}")
        except UnreachableError:
            # The daemon answered a moment ago: it is the wait that is over.
            now = client.call("GetWorker", client.pb.GetWorkerRequest(name=name), extra=ANSWER)
            state = now.worker.state
            text = f"after {wait:g} s {name} is {state}; the start goes on"
            raise ActionFailedError(text) from None
    raise UnreachableError("the daemon has stopped")
