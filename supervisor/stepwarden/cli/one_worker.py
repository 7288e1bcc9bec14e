"""Everything known of one worker, as lines of text or as a JSON object."""

from __future__ import annotations

import textwrap
from typing import Any

from stepwarden.cli.texts import duration, message_dict, plain, table
from stepwarden.naming import counted

WIDTH = 80
OBSERVED = "observe: it is judged and never signalled"
_RANK_HEADER = ("RANK", "PID", "PHASE", "STEP", "SEQS", "TOKENS", "AGE", "LEFT", "CPU", "BEAT")


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


def worker_lines(worker: Any) -> list[str]:
    """Everything known of one worker."""
    lines = []
    for label, text in _facts(worker).items():
        if text:
            lines += wrapped(f"{label + ':':<17}{plain(text)}", 17)
    if worker.ranks:
        lines += ["", *table(_RANK_HEADER, [_rank_row(rank) for rank in worker.ranks], WIDTH)]
    for rank in worker.ranks:
        remarks = _remarks(rank)
        if remarks:
            lines += wrapped(f"{plain(rank.name)}: {'; '.join(remarks)}")
    return lines


def _facts(worker: Any) -> dict[str, str]:
    """Labels and texts in the order shown; an empty text is not shown."""
    return {
        "worker": worker.name,
        "state": f"{worker.state} for {duration(worker.state_age_seconds)}",
        "cause": worker.cause,
        "verdict": worker.sentence,
        "mode": OBSERVED if worker.mode == "observe" else "",
        "diagnosis": _diagnosis(worker),
        "incarnation": worker.incarnation,
        "pid": str(worker.pid or ""),
        "uptime": duration(worker.uptime_seconds) if worker.pid else "",
        "backend": worker.backend,
        "learn": worker.learn,
        "group": worker.group,
        "runner": worker.runner,
        "unit": worker.unit,
        "cgroup": worker.cgroup,
        "restart needed": worker.restart_needed,
        "removed": "the file does not name it any more" if worker.removed else "",
        "waits": worker.held if worker.held != worker.sentence else "",
        "probe": worker.probe,
        "restarts": f"{worker.restarts_used} of {worker.restarts_limit} used",
        "deaths": str(worker.deaths),
        "false alarms": str(worker.false_alarms),
        "windows granted": str(worker.windows_granted or ""),
        "last death": worker.last_death,
        "last exit": worker.last_exit,
        "startup left": _optional(worker, "startup_left_seconds"),
        "restart in": _optional(worker, "restart_in_seconds"),
        "agent version": ", ".join(sorted({r.agent_version for r in worker.ranks} - {""})),
        "agent": "silent: its page moves, but no beat arrives" if worker.agent_silent else "",
        "cannot be ended": " ".join(str(pid) for pid in worker.leftover_pids),
    }


def _diagnosis(worker: Any) -> str:
    """`stopped: process 4711 of rank 0 is stopped ...`; "" where there is none."""
    return f"{worker.diagnosis}: {worker.grounds}" if worker.diagnosis else ""


def output_lines(worker: Any) -> list[str]:
    """What it printed last; nothing where that is not known."""
    if not worker.output:
        return []
    return ["", "it printed last:", *(f"  {_printable(line)}" for line in worker.output)]


def _printable(line: str) -> str:
    """A line of output, with its spaces."""
    return "".join(c if c.isprintable() else "?" for c in line.expandtabs())


def _remarks(rank: Any) -> list[str]:
    """What the table has no column for, and what is nothing in most ranks."""
    found = []
    if rank.in_flight > 1:
        found.append(f"{rank.in_flight} steps in flight")
    if rank.HasField("requests_unfinished"):
        turns, age = rank.loop_turns, duration(value(rank, "loop_age_seconds"))
        found.append(f"{counted(rank.requests_unfinished, 'request')} unfinished")
        if turns:
            found.append(f"its loop turned {age} ago, {counted(turns, 'turn')} so far")
    if rank.steps_unrecorded:
        found.append(f"{counted(rank.steps_unrecorded, 'step')} not recorded, the page was full")
    if rank.beats_refused:
        found.append(f"{counted(rank.beats_refused, 'beat')} refused")
    if rank.stamps_clamped:
        found.append(f"{counted(rank.stamps_clamped, 'stamp')} clamped")
    if rank.detail:
        found.append(plain(rank.detail))
    return found


def _rank_row(rank: Any) -> tuple[str, ...]:
    cpu = value(rank, "cpu_percent")
    cells = (
        rank.name,
        str(rank.pid or "-"),
        rank.phase,
        str(rank.step or "-"),
        _count(rank.num_seqs),
        _count(rank.num_tokens),
        duration(value(rank, "step_age_seconds")),
        duration(value(rank, "budget_left_seconds")),
        "-" if cpu is None else f"{cpu:.0f}%",
        duration(value(rank, "beat_age_seconds")),
    )
    return tuple(plain(cell) for cell in cells)


def most_urgent(worker: Any) -> Any:
    """The rank whose open step has the least budget left; None while nothing is in flight."""
    busy = [rank for rank in worker.ranks if rank.step]
    with_budget = [rank for rank in busy if rank.HasField("budget_left_seconds")]
    if with_budget:
        return min(with_budget, key=lambda rank: rank.budget_left_seconds)
    return busy[0] if busy else None


def value(message: Any, field: str) -> float | None:
    """A field that may be absent."""
    return getattr(message, field) if message.HasField(field) else None


def _optional(message: Any, field: str) -> str:
    return duration(getattr(message, field)) if message.HasField(field) else ""


def _count(number: int) -> str:
    return str(number) if number >= 1 else "-"


def wrapped(text: str, indent: int = 2) -> list[str]:
    """Lines of at most 80 columns."""
    return textwrap.wrap(text, WIDTH, subsequent_indent=" " * indent, break_long_words=False) or [
        text
    ]
