"""`stepwarden status`: every worker on a line, or everything known of one."""

from __future__ import annotations

import argparse
import textwrap
from typing import Any

from stepwarden.cli.client import add_connection_arguments, connect
from stepwarden.cli.texts import as_json, duration, message_dict, plain, table
from stepwarden.errors import ExitCode

WIDTH = 80
STALE_LOOP_SECONDS = 3.0

_HEADER = ("WORKER", "STATE", "CAUSE", "PID", "INC", "STEP", "AGE", "LEFT", "RESTARTS")
_RANK_HEADER = ("RANK", "PID", "PHASE", "STEP", "SEQS", "TOKENS", "AGE", "LEFT", "CPU", "BEAT")
_CALM = frozenset({"HEALTHY", "STOPPED"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `status`."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="show everything known of one")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    add_connection_arguments(parser)


def run(options: argparse.Namespace) -> ExitCode:
    """Ask the daemon and print."""
    with connect(options) as client:
        if options.name is not None:
            worker = client.call("GetWorker", client.pb.GetWorkerRequest(name=options.name)).worker
            print(as_json(worker_dict(worker)) if options.json else "\n".join(one(worker)))
            return ExitCode.OK
        answer = client.call("ListWorkers", client.pb.ListWorkersRequest())
    if options.json:
        print(as_json(list_dict(answer)))
    else:
        print("\n".join(overview(answer)))
    return ExitCode.OK


def list_dict(answer: Any) -> dict[str, Any]:
    """The JSON document of all workers."""
    return {
        "version": answer.version,
        "loop_age_seconds": answer.loop_age_seconds,
        "trouble": answer.trouble or None,
        "workers": [worker_dict(worker) for worker in answer.workers],
    }


def worker_dict(worker: Any) -> dict[str, Any]:
    """The JSON object of one worker; null for what is unknown or not there."""
    found = message_dict(worker)
    found["pid"] = found["pid"] or None
    found["uptime_seconds"] = found["uptime_seconds"] if found["pid"] else None
    for rank in found["ranks"]:
        rank["pid"] = rank["pid"] or None
        rank["step"] = rank["step"] or None
        for count in ("num_seqs", "num_tokens"):
            rank[count] = rank[count] if rank[count] >= 1 else None
    return found


def overview(answer: Any) -> list[str]:
    """The table of all workers, and a sentence for each that is not well."""
    lines = ["no workers are configured"]
    if answer.workers:
        lines = table(_HEADER, [_row(worker) for worker in answer.workers], WIDTH)
    if answer.loop_age_seconds > STALE_LOOP_SECONDS:
        age = duration(answer.loop_age_seconds)
        lines.append(f"the daemon's own loop last turned {age} ago; what is shown is that old")
    if answer.trouble:
        lines += _wrapped(plain(answer.trouble))
    for worker in answer.workers:
        if worker.sentence and worker.state not in _CALM:
            lines += _wrapped(f"{plain(worker.name)}: {plain(worker.sentence)}")
    return lines


def one(worker: Any) -> list[str]:
    """Everything known of one worker."""
    facts = {
        "worker": plain(worker.name),
        "state": f"{worker.state} for {duration(worker.state_age_seconds)}",
        "cause": worker.cause,
        "verdict": plain(worker.sentence),
        "incarnation": worker.incarnation,
        "pid": str(worker.pid or ""),
        "uptime": duration(worker.uptime_seconds) if worker.pid else "",
        "backend": worker.backend,
        "group": plain(worker.group),
        "runner": worker.runner,
        "unit": plain(worker.unit),
        "cgroup": plain(worker.cgroup),
        "waits": plain(worker.held) if worker.held != worker.sentence else "",
        "probe": plain(worker.probe),
        "restarts": f"{worker.restarts_used} of {worker.restarts_limit} used",
        "deaths": str(worker.deaths),
        "false alarms": str(worker.false_alarms),
        "windows granted": str(worker.windows_granted or ""),
        "last death": plain(worker.last_death),
        "last exit": plain(worker.last_exit),
        "startup left": _optional(worker, "startup_left_seconds"),
        "restart in": _optional(worker, "restart_in_seconds"),
        "agent version": ", ".join(sorted({plain(r.agent_version) for r in worker.ranks} - {""})),
        "agent": "silent: its page moves, but no beat arrives" if worker.agent_silent else "",
        "cannot be ended": " ".join(str(pid) for pid in worker.leftover_pids),
    }
    lines = []
    for label, text in facts.items():
        if text:
            lines += _wrapped(f"{label + ':':<17}{text}", 17)
    if worker.ranks:
        lines += ["", *table(_RANK_HEADER, [_rank_row(rank) for rank in worker.ranks], WIDTH)]
    for rank in worker.ranks:
        remarks = _remarks(rank)
        if remarks:
            lines += _wrapped(f"{plain(rank.name)}: {'; '.join(remarks)}")
    if worker.output:
        lines += ["", "it printed last:", *(f"  {_printable(line)}" for line in worker.output)]
    return lines


def _printable(line: str) -> str:
    """A line of output, with its spaces."""
    return "".join(c if c.isprintable() else "?" for c in line.expandtabs())


def _remarks(rank: Any) -> list[str]:
    """What the table has no column for, and what is nothing in most ranks."""
    found = []
    if rank.in_flight > 1:
        found.append(f"{rank.in_flight} steps in flight")
    if rank.HasField("requests_unfinished"):
        turns, age = rank.loop_turns, duration(_value(rank, "loop_age_seconds"))
        found.append(f"{_number(rank.requests_unfinished, 'request')} unfinished")
        if turns:
            found.append(f"its loop turned {age} ago, {_number(turns, 'turn')} so far")
    if rank.steps_unrecorded:
        found.append(f"{_number(rank.steps_unrecorded, 'step')} not recorded, the page was full")
    if rank.beats_refused:
        found.append(f"{_number(rank.beats_refused, 'beat')} refused")
    if rank.stamps_clamped:
        found.append(f"{_number(rank.stamps_clamped, 'stamp')} clamped")
    if rank.detail:
        found.append(plain(rank.detail))
    return found


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _row(worker: Any) -> tuple[str, ...]:
    rank = _most_urgent(worker)
    left = None if rank is None else _value(rank, "budget_left_seconds")
    if left is None:
        left = _value(worker, "startup_left_seconds")
    return (
        plain(worker.name),
        worker.state,
        worker.cause or "-",
        str(worker.pid or "-"),
        worker.incarnation or "-",
        str(rank.step) if rank is not None else "-",
        duration(_value(rank, "step_age_seconds")) if rank is not None else "-",
        duration(left),
        f"{worker.restarts_used}/{worker.restarts_limit}",
    )


def _rank_row(rank: Any) -> tuple[str, ...]:
    cpu = _value(rank, "cpu_percent")
    return (
        plain(rank.name),
        str(rank.pid or "-"),
        rank.phase,
        str(rank.step or "-"),
        _count(rank.num_seqs),
        _count(rank.num_tokens),
        duration(_value(rank, "step_age_seconds")),
        duration(_value(rank, "budget_left_seconds")),
        "-" if cpu is None else f"{cpu:.0f}%",
        duration(_value(rank, "beat_age_seconds")),
    )


def _most_urgent(worker: Any) -> Any:
    """The rank whose open step has the least budget left; None while nothing is in flight."""
    busy = [rank for rank in worker.ranks if rank.step]
    with_budget = [rank for rank in busy if rank.HasField("budget_left_seconds")]
    if with_budget:
        return min(with_budget, key=lambda rank: rank.budget_left_seconds)
    return busy[0] if busy else None


def _value(message: Any, field: str) -> float | None:
    return getattr(message, field) if message.HasField(field) else None


def _optional(message: Any, field: str) -> str:
    return duration(getattr(message, field)) if message.HasField(field) else ""


def _count(number: int) -> str:
    return str(number) if number >= 1 else "-"


def _wrapped(text: str, indent: int = 2) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=" " * indent, break_long_words=False) or [
        text
    ]
