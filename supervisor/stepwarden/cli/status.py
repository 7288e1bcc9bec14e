"""`stepwarden status`: every worker on a line, or everything known of one."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable
from typing import Any

from stepwarden.cli import history
from stepwarden.cli.client import Client, add_connection_arguments, connect
from stepwarden.cli.learned import learned_dicts, learned_lines
from stepwarden.cli.one_worker import (
    WIDTH,
    most_urgent,
    output_lines,
    value,
    worker_dict,
    worker_lines,
    wrapped,
)
from stepwarden.cli.texts import as_json, duration, message_dict, plain, table
from stepwarden.core.awareness import MOST_DOUBT
from stepwarden.errors import ExitCode
from stepwarden.naming import first_names

STALE_LOOP_SECONDS = 3.0
DEFAULT_LAST = 5
MAX_LAST = 1000

_HEADER = ("WORKER", "STATE", "CAUSE", "PID", "INC", "STEP", "AGE", "LEFT", "RESTARTS")
WELL = frozenset({"HEALTHY", "STOPPED"})
"""States of a worker that does what its operator wants."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `status`."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="show everything known of one")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "--check",
        action="store_true",
        help=f"exit with {int(ExitCode.NOT_WELL)} unless every worker shown is HEALTHY or STOPPED"
        " and the daemon's own loop turns",
    )
    parser.add_argument(
        "--unwell", action="store_true", help="show only workers that are not HEALTHY or STOPPED"
    )
    parser.add_argument(
        "--last",
        type=_last,
        default=DEFAULT_LAST,
        metavar="N",
        help="with NAME: its last N verdicts, 0 to 1000 (default: %(default)s)",
    )
    add_connection_arguments(parser)


def run(options: argparse.Namespace) -> ExitCode:
    """Ask the daemon and print. With --check the exit code says whether all is well."""
    with connect(options) as client:
        if options.name is not None:
            well = _show_one(client, options)
        else:
            well = _show_all(client, options)
    return ExitCode.NOT_WELL if options.check and not well else ExitCode.OK


def _show_all(client: Client, options: argparse.Namespace) -> bool:
    answer = client.call("ListWorkers", client.pb.ListWorkersRequest())
    unwell = [worker for worker in answer.workers if worker.state not in WELL]
    if options.json:
        print(as_json(list_dict(answer, options.unwell)))
    else:
        print("\n".join(overview(answer, options.unwell)))
    return not unwell and answer.loop_age_seconds <= STALE_LOOP_SECONDS


def _show_one(client: Client, options: argparse.Namespace) -> bool:
    answer = client.call("GetWorker", client.pb.GetWorkerRequest(name=options.name))
    worker = answer.worker
    events = past(client, options.name)
    if options.json:
        learned = {"learned": learned_dicts(answer.learned)}
        print(as_json(worker_dict(worker) | learned | history.as_dict(events, options.last)))
    else:
        lines = one(worker, events, options.last, answer.learned)
        print("\n".join(lines))
    return worker.state in WELL


def past(client: Client, name: str) -> list[Any]:
    """The events of one worker that its history is made of, oldest first."""
    request = client.pb.WatchEventsRequest(
        worker=name, limit=history.MOST_EVENTS, kinds=sorted(history.KINDS)
    )
    # A daemon of an older version sends all kinds.
    return [e for e in client.stream("WatchEvents", request) if e.kind in history.KINDS]


def list_dict(answer: Any, unwell: bool = False) -> dict[str, Any]:
    """The JSON document of all workers, or of the unwell ones."""
    shown = [w for w in answer.workers if not unwell or w.state not in WELL]
    return {
        "version": answer.version,
        "loop_age_seconds": answer.loop_age_seconds,
        "trouble": answer.trouble or None,
        "runner_note": answer.runner_note or None,
        "doubt_score": answer.doubt_score,
        "doubt_reason": answer.doubt_reason or None,
        "governor": answer.governor or None,
        "stacks_note": answer.stacks_note or None,
        "configuration": message_dict(answer.configuration),
        "unwell": [worker.name for worker in answer.workers if worker.state not in WELL],
        "workers": [worker_dict(worker) for worker in shown],
    }


def overview(answer: Any, unwell: bool = False) -> list[str]:
    """The table of all workers, and a sentence for each that is not well."""
    shown = [w for w in answer.workers if not unwell or w.state not in WELL]
    lines = [] if answer.workers else ["no workers are configured"]
    if shown:
        lines = table(_HEADER, [_row(worker) for worker in shown], WIDTH)
    if len(answer.workers) > 1 or (answer.workers and not shown):
        lines += wrapped(counts(answer.workers))
    if answer.loop_age_seconds > STALE_LOOP_SECONDS:
        age = duration(answer.loop_age_seconds)
        lines.append(f"the daemon's own loop last turned {age} ago; what is shown is that old")
    if answer.trouble:
        lines += wrapped(plain(answer.trouble))
    for text in (answer.runner_note, *doubt_lines(answer), answer.stacks_note):
        lines += wrapped(plain(text)) if text else []
    observed = [worker.name for worker in answer.workers if worker.mode == "observe"]
    if observed:
        lines += wrapped(f"observed, and never signalled: {plain(first_names(observed))}")
    if answer.configuration.path:
        lines += wrapped(plain(answer.configuration.sentence))
    for worker in shown:
        if worker.restart_needed:
            text = "restart needed, its process has not the file's"
            lines += wrapped(f"{plain(worker.name)}: {text} {plain(worker.restart_needed)}")
        if worker.sentence and worker.state not in WELL:
            lines += wrapped(f"{plain(worker.name)}: {plain(worker.sentence)}")
        if _is_news(worker):
            text = f"diagnosis {worker.diagnosis}: {worker.grounds}"
            lines += wrapped(f"{plain(worker.name)}: {plain(text)}")
    return lines


def doubt_lines(answer: Any) -> list[str]:
    """What the governor holds up, and how much the daemon doubts itself; empty texts are none."""
    doubt = ""
    if answer.doubt_score:
        doubt = f"the daemon doubts itself ({answer.doubt_score} of {MOST_DOUBT},"
        doubt += f" {answer.doubt_reason}): retry windows are longer"
    return [answer.governor, doubt]


def _is_news(worker: Any) -> bool:
    """Whether its diagnosis says more than the verdict beside it; that it idles is none."""
    told = f"diagnosis {worker.diagnosis}:" in worker.sentence or worker.grounds in worker.sentence
    return worker.diagnosis not in ("", "idle") and not told


def counts(workers: Any) -> str:
    """``5 workers: 3 HEALTHY, 1 STARTING, 1 FAILED``, the largest number first."""
    states = Counter(plain(worker.state) for worker in workers)
    told = ", ".join(f"{number} {state}" for state, number in states.most_common())
    return f"{len(workers)} worker{'' if len(workers) == 1 else 's'}: {told}"


def one(
    worker: Any, events: list[Any], last: int = DEFAULT_LAST, learned: Iterable[Any] = ()
) -> list[str]:
    """Everything known of one worker, with the reasons of its last verdicts and its lives."""
    lines = worker_lines(worker) + learned_lines(learned, WIDTH)
    told = history.verdicts(events, last)
    if told:
        lines += ["", "last verdicts, the newest last:", *history.verdict_lines(told)]
    lives = history.lives(events)[: history.SHOWN_LIVES]
    if lives:
        lines += ["", *history.life_lines(lives, worker.incarnation if worker.pid else "")]
    return lines + output_lines(worker)


def _row(worker: Any) -> tuple[str, ...]:
    rank = most_urgent(worker)
    left = None if rank is None else value(rank, "budget_left_seconds")
    for field in ("startup_left_seconds", "restart_in_seconds"):
        left = value(worker, field) if left is None else left
    cells = (
        worker.name,
        worker.state,
        worker.cause or "-",
        str(worker.pid or "-"),
        worker.incarnation or "-",
        str(rank.step) if rank is not None else "-",
        duration(value(rank, "step_age_seconds")) if rank is not None else "-",
        duration(left),
        f"{worker.restarts_used}/{worker.restarts_limit}",
    )
    return tuple(plain(cell) for cell in cells)


def _last(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else -1
    if not 0 <= number <= MAX_LAST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 to {MAX_LAST}")
    return number
