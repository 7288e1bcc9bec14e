"""The lines of a recording, one JSON object each: what was asked of the core, and what came of it.

    {"head": {...}}                              the first line of a file
    {"w": worker, "state": ...}                  where this worker stands, whatever went before
    {"w": worker, "f": name, "a": {...}, ...}    a call into the core, with what changed since the
                                                 last call of this name; "whole": all of it

A file can be read without those before it: it begins with the state of each worker.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from stepwarden.core.event import Event
from stepwarden.core.worker import Call, WorkerState
from stepwarden.replay.codec import UnreadableError, decode, encode
from stepwarden.replay.delta import change, changed

FORMAT = 1
"""Of the lines; a reader refuses a later one."""

Arguments = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Head:
    """Which daemon wrote a file, and when by both clocks (seconds; `wall` since 1970).

    `run` is the same in all files of one daemon.
    """

    run: str
    version: str
    wall: float
    monotonic: float


@dataclass(frozen=True, slots=True)
class Known:
    """Where a worker stands."""

    worker: str
    state: WorkerState


@dataclass(frozen=True, slots=True)
class Asked:
    """One call into the core, and the events that came of it."""

    worker: str
    name: str
    arguments: Arguments
    events: tuple[Event, ...] = ()


Record = Head | Known | Asked


@dataclass(slots=True)
class _Bases:
    """The last arguments of each call, by worker and name."""

    last: dict[tuple[str, str], Arguments] = field(default_factory=dict)

    def forget(self, worker: str) -> None:
        for key in [key for key in self.last if key[0] == worker]:
            del self.last[key]


class Writer:
    """Makes lines of calls."""

    def __init__(self) -> None:
        self._states: dict[str, WorkerState] = {}
        self._bases = _Bases()

    def begin(self, head: Head) -> list[str]:
        """The first lines of a new file."""
        self._bases = _Bases()
        told = {"format": FORMAT, **{name: getattr(head, name) for name in Head.__slots__}}
        return [_line({"head": told}), *map(_state_line, self._states.values())]

    def write(self, after: WorkerState, call: Call | None, events: Sequence[Event]) -> list[str]:
        """The lines of one outcome: `after` is the state that came of it."""
        worker = after.name
        known = self._states.get(worker)
        self._states[worker] = after
        if call is None:
            return [_state_line(after)]
        lines = [] if known is call.state or known == call.state else [_state_line(call.state)]
        return [*lines, self._call_line(worker, call, events)]

    def forget(self, worker: str) -> None:
        """It is not configured any more."""
        self._states.pop(worker, None)
        self._bases.forget(worker)

    def _call_line(self, worker: str, call: Call, events: Sequence[Event]) -> str:
        key = (worker, call.name)
        base = self._bases.last.get(key, {})
        self._bases.last[key] = call.arguments
        told: dict[str, Any] = {"w": worker, "f": call.name}
        if base.keys() == call.arguments.keys():
            changes = {name: change(base[name], item) for name, item in call.arguments.items()}
            told["a"] = {name: inner for name, inner in changes.items() if inner is not None}
        else:
            told["whole"] = {name: encode(item) for name, item in call.arguments.items()}
        if events:
            told["events"] = [encode(event) for event in events]
        return _line(told)


def read(lines: Iterable[str]) -> Iterator[Record]:
    """The records of one file; `UnreadableError` says which line cannot be read."""
    bases = _Bases()
    for number, line in enumerate(lines, start=1):
        try:
            yield _record(json.loads(line), bases)
        except UnreadableError as error:
            raise UnreadableError(f"line {number}: {error}") from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            text = f"line {number}: this is no line of a recording ({type(error).__name__})"
            raise UnreadableError(text) from None


def _record(told: dict[str, Any], bases: _Bases) -> Record:
    if "head" in told:
        return _head(told["head"])
    worker = str(told["w"])
    if "state" in told:
        return Known(worker, decode(told["state"]))
    key = (worker, str(told["f"]))
    if "whole" in told:
        arguments = {name: decode(item) for name, item in told["whole"].items()}
    else:
        base = bases.last[key]
        arguments = {name: changed(item, told["a"].get(name)) for name, item in base.items()}
    bases.last[key] = arguments
    return Asked(worker, key[1], arguments, tuple(map(decode, told.get("events", ()))))


def _head(told: dict[str, Any]) -> Head:
    if told["format"] != FORMAT:
        raise UnreadableError(f"its format is {told['format']!r}; this version reads {FORMAT}")
    return Head(
        str(told["run"]), str(told["version"]), float(told["wall"]), float(told["monotonic"])
    )


def _state_line(state: WorkerState) -> str:
    return _line({"w": state.name, "state": encode(state)})


def _line(told: object) -> str:
    return json.dumps(told, separators=(",", ":")) + "\n"
