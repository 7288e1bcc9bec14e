"""One bundle as people read it, and as one JSON document."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from stepwarden.cli.texts import duration, plain
from stepwarden.edge.bundle import Bundle

WIDTH = 100
SHOWN_EVENTS = 12
SHOWN_FRAMES = 12
SHOWN_THREADS = 8
SHOWN_OUTPUT = 15
_CAPTURES = ("first", "before", "last")


def document(found: Bundle) -> dict[str, Any]:
    """Everything in it, member by member."""
    told: dict[str, Any] = {
        "id": found.summary.id,
        "seal": found.summary.seal,
        "intact": not found.faults,
        "head": dict(found.summary.head),
    }
    for name, raw in found.members.items():
        stem, _, kind = name.rpartition(".")
        told[stem] = _json(raw) if kind == "json" else raw.decode("utf-8", "replace").splitlines()
    return told


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return None


def lines(found: Bundle) -> list[str]:
    """What an operator wants to know first."""
    head, told = found.summary.head, document(found)
    state = "intact" if not found.faults else "BROKEN"
    shown = [
        plain(found.summary.id),
        f"  {_text(head, 'kind')} of {_text(head, 'worker')}, life {_text(head, 'incarnation')},"
        f" {_text(head, 'time')}",
        f"  seal {found.summary.seal} ({state})",
        *_wrapped(_text(head, "sentence")),
    ]
    if head.get("follows"):
        shown.append(f"  follows {_text(head, 'follows')}")
    for section in (_diffs(told), _stacks(told), _budgets(told), _events(told), _output(told)):
        shown += section
    shown.append("members:")
    shown.append("  " + ", ".join(plain(name) for name in found.members))
    return shown


def _diffs(told: Mapping[str, Any]) -> list[str]:
    diffs = told.get("diff") or {}
    rows: list[str] = []
    for rank, diff in diffs.items():
        rows += _wrapped(f"{_rank(rank)}: {diff.get('place')}: {diff.get('sentence')}")
    return ["stacks, two looks compared:", *rows] if rows else []


def _stacks(told: Mapping[str, Any]) -> list[str]:
    newest = next((told[f"stacks-{n}"] for n in reversed(_CAPTURES) if f"stacks-{n}" in told), None)
    if newest is None:
        return []
    rows = [f"stacks, {duration(newest.get('age'))} before:"]
    for rank, look in newest.get("ranks", {}).items():
        rows.append(f"  {_rank(rank)}, pid {look.get('pid')}")
        if look.get("error"):
            rows += _wrapped(f"no stacks: {look['error']}", 4)
        rows += list(_threads(look.get("threads", [])))
    return rows


def _threads(threads: list[Mapping[str, Any]]) -> Iterator[str]:
    ordered = sorted(threads, key=lambda thread: not thread.get("main"))
    for thread in ordered[:SHOWN_THREADS]:
        runs = ", running" if thread.get("active") else ""
        yield f"    {plain(str(thread.get('name')))} ({thread.get('tid')}{runs})"
        frames = thread.get("frames", [])
        yield from (f"      {plain(str(frame))}" for frame in frames[:SHOWN_FRAMES])
        if len(frames) > SHOWN_FRAMES:
            yield f"      and {len(frames) - SHOWN_FRAMES} outer ones"
    if len(ordered) > SHOWN_THREADS:
        yield f"    and {len(ordered) - SHOWN_THREADS} more threads"


def _budgets(told: Mapping[str, Any]) -> list[str]:
    rows: list[str] = []
    for clock in told.get("budgets") or []:
        who = _rank(clock.get("rank") or "")
        rows += _wrapped(f"{who}: {clock.get('cause')}: {clock.get('arithmetic')}")
    return ["budgets:", *rows] if rows else []


def _events(told: Mapping[str, Any]) -> list[str]:
    events = (told.get("events") or [])[-SHOWN_EVENTS:]
    rows: list[str] = []
    for event in events:
        to_state = event.get("to_state")
        change = f"{event.get('from_state')} -> {to_state}" if to_state else event.get("kind")
        rows += _wrapped(f"{str(event.get('time'))[11:23]} {change}: {event.get('sentence')}")
    return ["events:", *rows] if rows else []


def _output(told: Mapping[str, Any]) -> list[str]:
    rows = (told.get("output") or [])[-SHOWN_OUTPUT:]
    return ["its last output:", *(f"  {plain(row)}" for row in rows)] if rows else []


def _rank(name: str) -> str:
    return f"rank {plain(name)}" if name else "worker"


def _text(head: Mapping[str, Any], key: str) -> str:
    return plain(str(head.get(key, "")))


def _wrapped(text: str, indent: int = 2) -> list[str]:
    blank = " " * indent
    return textwrap.wrap(plain(text), WIDTH, initial_indent=blank, subsequent_indent=blank + "    ")
