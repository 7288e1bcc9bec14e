"""How workers and events look in `top`: texts that fit, order and filter. No screen, no clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stepwarden.cli.history import change_of
from stepwarden.cli.one_worker import most_urgent, value
from stepwarden.cli.status import WELL, counts, doubt_lines
from stepwarden.cli.texts import cells, duration, padded, plain
from stepwarden.core.deadline import elapsed

RATE_SECONDS = 5.0
"""Steps are counted over this time."""

STALE_SECONDS = 3.0
"""What was heard longer ago is said to be old."""

MOODS = {
    "HEALTHY": "good",
    "STOPPED": "calm",
    "UNHEALTHY": "bad",
    "DEAD": "bad",
    "FAILED": "bad",
}
"""State to mood; every other state is "warn"."""

_URGENCY = (
    *("FAILED", "DEAD", "UNHEALTHY", "RESTARTING"),
    *("ADOPTED", "STARTING", "STOPPING", "HEALTHY", "STOPPED"),
)
Key = Callable[[Any], Any]


@dataclass(frozen=True)
class Signs:
    """What bars and cuts are drawn with."""

    full: str = "\u2588"
    empty: str = "\u00b7"
    cut: str = "\u2026"


ASCII = Signs("#", ".", "~")


@dataclass(frozen=True)
class Row:
    """One worker: its name, its cells in the order of the columns, its mood."""

    name: str
    cells: tuple[str, ...]
    mood: str


class Rates:
    """Steps a second of each worker, from what the lists of the last seconds say."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str, str], deque[tuple[float, int]]] = {}

    def add(self, workers: Iterable[Any], now: float) -> None:
        """Take a list that was received now; who is not in it is forgotten."""
        before, self._seen = self._seen, {}
        for worker in workers:
            for rank in worker.ranks:
                key = (worker.name, worker.incarnation, rank.name)
                samples = before.get(key, deque())
                if samples and rank.steps_ended < samples[-1][1]:
                    samples.clear()
                samples.append((now, rank.steps_ended))
                while elapsed(samples[0][0], now) > RATE_SECONDS and len(samples) > 2:
                    samples.popleft()
                self._seen[key] = samples

    def of(self, worker: Any) -> float | None:
        """Of its fastest rank; None while it cannot be told."""
        found = [self._rate((worker.name, worker.incarnation, r.name)) for r in worker.ranks]
        return max((rate for rate in found if rate is not None), default=None)

    def _rate(self, key: tuple[str, str, str]) -> float | None:
        samples = self._seen.get(key)
        if not samples or len(samples) < 2:
            return None
        (first, some), (last, more) = samples[0], samples[-1]
        span = elapsed(first, last)
        return (more - some) / span if span > 0 else None


def cpu(worker: Any) -> float | None:
    """Percent of one core, of all ranks together; None while unknown."""
    found = [value(rank, "cpu_percent") for rank in worker.ranks]
    known = [percent for percent in found if percent is not None]
    return sum(known) if known else None


def lateness(worker: Any) -> float:
    """Which part of its budget the most urgent step has used; 0.0 without one."""
    rank = most_urgent(worker)
    budget = value(rank, "budget_seconds") if rank is not None else None
    return (value(rank, "step_age_seconds") or 0.0) / budget if budget else 0.0


def orders(rates: Rates) -> Mapping[str, Key | None]:
    """Each order by name: what to sort by; None: as in the file."""
    return {
        "urgency": lambda w: _URGENCY.index(w.state) if w.state in _URGENCY else 0,
        "file": None,
        "name": lambda w: w.name,
        "step": lambda w: -lateness(w),
        "rate": lambda w: -(rates.of(w) or 0.0),
        "cpu": lambda w: -(cpu(w) or 0.0),
        "restarts": lambda w: (-w.restarts_used, -w.deaths),
    }


def chosen(workers: Sequence[Any], wanted: str, key: Key | None, unwell: bool) -> list[Any]:
    """Those whose name, state, cause, diagnosis, backend or group has `wanted` in it, in order."""
    found = [w for w in workers if _matches(w, wanted.casefold())]
    if unwell:
        found = [w for w in found if w.state not in WELL]
    return found if key is None else sorted(found, key=key)


def _matches(worker: Any, wanted: str) -> bool:
    why = (worker.cause, worker.diagnosis)
    texts = (worker.name, worker.state, *why, worker.backend, worker.group)
    return any(wanted in text.casefold() for text in texts)


def row(worker: Any, rates: Rates, step_width: int, signs: Signs) -> Row:
    """The cells of one worker."""
    rank = most_urgent(worker)
    rate, percent = rates.of(worker), cpu(worker)
    return Row(
        worker.name,
        (
            worker.name,
            worker.state,
            worker.cause or ("observed" if worker.mode == "observe" else "-"),
            step_text(worker, step_width, signs),
            str(rank.num_seqs) if rank is not None and rank.num_seqs >= 1 else "-",
            "-" if rate is None else f"{rate:.1f}" if rate < 1000 else f"{rate:.0f}",
            "-" if percent is None else f"{percent:.0f}%",
            f"{worker.restarts_used}/{worker.restarts_limit}",
        ),
        MOODS.get(worker.state, "warn"),
    )


def step_text(worker: Any, width: int, signs: Signs) -> str:
    """The open step as a bar, or what the worker does or waits for instead."""
    rank = most_urgent(worker)
    if rank is not None:
        age, budget = value(rank, "step_age_seconds") or 0.0, value(rank, "budget_seconds")
        return bar(age, budget, width, signs)
    again, startup = value(worker, "restart_in_seconds"), value(worker, "startup_left_seconds")
    if again is not None:
        return f"again in {duration(again)}"
    if startup is not None:
        return f"{_phase(worker)} <{duration(startup)}"
    if worker.held:
        return "waits"
    return _phase(worker) if worker.pid and worker.ranks else "-"


def _phase(worker: Any) -> str:
    return worker.ranks[0].phase if worker.ranks else "starts"


def bar(age: float, budget: float | None, width: int, signs: Signs) -> str:
    """``####.... 12.3s/42.8s``; a late one is full and ends in "!", for eyes without colour."""
    if budget is None:
        return duration(age)
    label = f"{_short(age)}/{_short(budget)}"
    room = width - len(label) - 1
    if room < 3:
        return label + ("!" if age >= budget else "")
    if age >= budget:
        return f"{signs.full * (room - 1)}! {label}"
    full = min(room - 1, int(room * age / budget))
    return f"{signs.full * full}{signs.empty * (room - full)} {label}"


def _short(seconds: float) -> str:
    if seconds < 9.95:
        return f"{seconds:.1f}"
    return f"{seconds:.0f}" if seconds < 1000 else f"{seconds / 60:.0f}m"


@dataclass(frozen=True)
class Columns:
    """Widths of the columns, and how they are told."""

    widths: tuple[int, ...]

    TITLES = ("WORKER", "STATE", "CAUSE", "STEP/BUDGET", "BATCH", "STEP/S", "CPU", "RST")
    RIGHT = frozenset({4, 5, 6, 7})
    STEP = 3

    @classmethod
    def for_width(cls, width: int, names: Iterable[str]) -> Columns:
        """They take `width` columns of the terminal, or 60 where it is narrower."""
        fixed = (10, 9, 5, 6, 5, 5)
        left = max(60, width) - sum(fixed) - 7
        longest = max([cells(plain(name)) for name in names] + [8])
        name = min(longest, max(8, left // 2))
        return cls((name, 10, 9, min(left - name, 48), *fixed[2:]))

    def line(self, row: Sequence[str], signs: Signs) -> str:
        """One line of the table."""
        parts = []
        for index, (text, width) in enumerate(zip(row, self.widths, strict=True)):
            shown = fit(text, width, signs)
            pad = " " * (width - cells(shown))
            parts.append(pad + shown if index in self.RIGHT else shown + pad)
        return " ".join(parts)


def fit(text: str, width: int, signs: Signs) -> str:
    """`text` harmless and cut to `width` columns."""
    text = plain(text)
    if cells(text) <= width:
        return text
    shown, room = "", width - 1
    for letter in text:
        room -= cells(letter)
        if room < 0:
            break
        shown += letter
    return shown + signs.cut if width > 0 else ""


def event_line(event: Any, width: int, signs: Signs) -> str:
    """One event on one line: time of day, worker, what changed, why."""
    parts = (event.worker or "daemon", change_of(event), event.sentence)
    text = f"{event.time[11:19]} {': '.join(part for part in parts if part)}"
    return padded(fit(text, width, signs), width)


def head_line(answer: Any, age: float, trouble: str, width: int, signs: Signs) -> tuple[str, str]:
    """The first line, and its mood."""
    if answer is None:
        return fit(trouble or "asking the daemon ...", width, signs), "bad" if trouble else "calm"
    told = counts(answer.workers) if answer.workers else "no workers are configured"
    old = f"as of {duration(age)} ago: " if age > STALE_SECONDS else ""
    if trouble or old:
        why = trouble or "the daemon does not answer"
        return fit(f"{old}{why}", width, signs), "bad"
    if answer.loop_age_seconds > STALE_SECONDS:
        loop = duration(answer.loop_age_seconds)
        return fit(f"the daemon's own loop last turned {loop} ago", width, signs), "bad"
    if answer.trouble:
        return fit(f"{told}; {answer.trouble}", width, signs), "warn"
    doubts = [text for text in doubt_lines(answer) if text]
    if doubts:
        return fit("; ".join((told, *doubts)), width, signs), "warn"
    return fit(told, width, signs), "calm"
