"""`events --since` and `--kind`: what is accepted, and what of the history is shown."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.cli import since as module
from stepwarden.cli.main import main
from stepwarden.cli.since import since
from stepwarden.core.event import Event, Kind
from stepwarden.edge.views import EventFilter, RecordedEvent
from stepwarden.errors import ExitCode
from support.admin_process import admin_process
from support.state import open_store

PRESENT = datetime(2026, 1, 2, 12, 0, tzinfo=timezone(timedelta(hours=1)))


class Noon:
    def monotonic(self) -> float:
        return 0.0

    def wall(self) -> datetime:
        return PRESENT


@pytest.fixture
def noon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "SystemClock", Noon)
    monkeypatch.setenv("TZ", "UTC-1")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("noon")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10m", PRESENT - timedelta(minutes=10)),
        ("1h30m", PRESENT - timedelta(minutes=90)),
        ("0.5d", PRESENT - timedelta(hours=12)),
        ("0s", PRESENT),
        ("11:05", PRESENT - timedelta(minutes=55)),
        ("11:05:30", PRESENT - timedelta(minutes=54, seconds=30)),
        ("2026-01-02", PRESENT - timedelta(hours=12)),
        ("2026-01-02 03:00", PRESENT - timedelta(hours=9)),
        ("2026-01-02T03:04:05Z", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
    ],
)
def test_what_people_say(text: str, expected: datetime) -> None:
    assert since(text) == expected.timestamp()


@pytest.mark.parametrize("text", ["", "10", "-5m", "yesterday", "25:00", "99999999999d", "1e5s"])
def test_what_is_no_time_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="accepted: a duration before now"):
        since(text)


@given(st.text(max_size=30))
def test_nothing_that_is_typed_breaks_it(text: str) -> None:
    try:
        assert since(text) > 0
    except argparse.ArgumentTypeError:
        return


def test_the_filter() -> None:
    stamp = datetime(2026, 1, 2, tzinfo=UTC)
    event = RecordedEvent(1, stamp.isoformat(), 1.0, Event(Kind.RETRY, "s", worker="w"))
    at = stamp.timestamp()
    assert EventFilter().wants(event)
    assert EventFilter("w", frozenset({"retry"}), at).wants(event)
    assert not EventFilter("v").wants(event)
    assert not EventFilter(kinds=frozenset({"started"})).wants(event)
    assert not EventFilter(since=at + 1).wants(event)
    # A time that nobody can read hides nothing.
    assert EventFilter(since=at).wants(RecordedEvent(1, "long ago", 1.0, event.event))


def test_the_history_on_disk_by_kind_and_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    present = datetime.now(UTC)
    with open_store(tmp_path) as store:
        for hours in (5, 4, 3, 2, 1):
            kind = Kind.RETRY if hours % 2 else Kind.STARTED
            when = present - timedelta(hours=hours, minutes=-5)
            store.journal.append(Event(kind, f"{hours} h ago", worker="w"), 1.0, when)
        assert store.journal.flush()

    def told(*words: str) -> list[str]:
        place = ["--socket", "/nowhere.sock", "--state-dir", str(tmp_path / "state"), "--json"]
        assert main(["events", *place, *words]) == ExitCode.OK
        return [json.loads(line)["sentence"] for line in capsys.readouterr().out.splitlines()]

    assert told("--since", "3h") == ["3 h ago", "2 h ago", "1 h ago"]
    assert told("--since", "3h", "--kind", "started") == ["2 h ago"]
    assert told("--kind", "retry,started", "--limit", "2") == ["2 h ago", "1 h ago"]
    assert told("--kind", "retry", "--kind", "started", "--since", "1s") == []


def test_a_daemon_filters_the_past_and_what_follows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.sock"
    with admin_process(path):
        place = ["--socket", os.fspath(path)]
        assert main(["events", *place, "--kind", "transition"]) == 0
        assert "it came up" in capsys.readouterr().out
        assert main(["events", *place, "--kind", "retry"]) == 0
        assert main(["events", *place, "--since", "1m"]) == 0
        assert capsys.readouterr().out == ""
        with pytest.raises(SystemExit):
            main(["events", *place, "--kind", "retri"])
        assert "did you mean retry?" in capsys.readouterr().err
