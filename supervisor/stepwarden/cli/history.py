"""What the events of one worker tell of it: its last verdicts with their reasons, and its lives."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from stepwarden.cli.texts import duration, event_dict, plain, table
from stepwarden.core.deadline import elapsed

VERDICTS = frozenset({"transition", "suspicion", "retry", "false_alarm", "left_open", "operator"})
KINDS = VERDICTS | {"started"}
MOST_EVENTS = 2000
"""How far back lives are looked for."""

SHOWN_LIVES = 5
WIDTH = 80
_HEADER = ("LIFE", "BEGAN", "UPTIME", "ALARMS", "ENDED BY")
_ENDINGS = {"DEAD": "death", "STOPPING": "stop", "FAILED": "failure", "STOPPED": "stop"}


@dataclass(slots=True)
class PastLife:
    """One life. Times are texts for people; `uptime` in seconds, None while unknown or alive."""

    incarnation: str
    began: str = ""
    ended: str = ""
    how: str = ""
    cause: str = ""
    sentence: str = ""
    uptime: float | None = None
    false_alarms: int = 0
    began_monotonic: float | None = None


def verdicts(events: Sequence[Any], most: int) -> list[Any]:
    """The newest events that say what was judged and why, oldest first."""
    found = [event for event in events if event.kind in VERDICTS]
    return found[-most:] if most > 0 else []


def lives(events: Sequence[Any]) -> list[PastLife]:
    """The lives that these events (oldest first) tell of, the newest first."""
    found: dict[str, PastLife] = {}
    for event in events:
        if event.incarnation not in ("", "0"):
            _add(found.setdefault(event.incarnation, PastLife(event.incarnation)), event)
    return list(reversed(found.values()))


def _add(life: PastLife, event: Any) -> None:
    if event.kind == "false_alarm":
        life.false_alarms += 1
    if not life.began and (event.kind == "started" or event.to_state == "STARTING"):
        life.began, life.began_monotonic = event.time, event.monotonic
    if not life.ended and event.to_state in _ENDINGS:
        life.ended, life.how = event.time, _ENDINGS[event.to_state]
        life.cause, life.sentence = event.cause, event.sentence
        # A host that was booted in between counts anew: then nothing is known.
        if life.began_monotonic is not None and event.monotonic >= life.began_monotonic:
            life.uptime = elapsed(life.began_monotonic, event.monotonic)


def verdict_lines(events: Sequence[Any]) -> list[str]:
    """Each verdict, with its sentence below."""
    lines = []
    for event in events:
        change = change_of(event)
        about = [f"({event.cause})" if event.cause else "", _rank(event.rank)]
        head = " ".join(plain(part) for part in (short_time(event.time), change, *about) if part)
        lines.append(f"  {head}")
        lines += textwrap.wrap(
            plain(event.sentence), WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6
        )
    return lines


def change_of(event: Any) -> str:
    """From which state to which, or what kind of event; "" where "daemon" says it all."""
    if event.to_state:
        return f"{event.from_state} -> {event.to_state}"
    return "" if event.kind == "daemon" and not event.worker else str(event.kind)


def _rank(name: str) -> str:
    return f"rank {name}" if name else ""


def life_lines(found: Sequence[PastLife], alive: str) -> list[str]:
    """A table of lives; the newest first. `alive`: the incarnation that runs now; "": none."""
    rows = [
        (
            life.incarnation,
            short_time(life.began) or "-",
            "alive" if life.incarnation == alive and not life.ended else duration(life.uptime),
            str(life.false_alarms),
            f"{life.how} ({life.cause})" if life.cause else life.how or "-",
        )
        for life in found
    ]
    return table(_HEADER, [tuple(plain(cell) for cell in row) for row in rows], WIDTH)


def short_time(text: str) -> str:
    """A time of an event without its fraction and zone, which are this host's own."""
    return text[:19].replace("T", " ")


def as_dict(events: Sequence[Any], most: int) -> dict[str, Any]:
    """`verdicts` and `lives` for a JSON document; null for what is unknown or not there."""
    past = []
    for life in lives(events):
        row = {key: None if value == "" else value for key, value in asdict(life).items()}
        row["uptime_seconds"] = row.pop("uptime")
        del row["began_monotonic"]
        past.append(row)
    return {"verdicts": [event_dict(e) for e in verdicts(events, most)], "lives": past}
