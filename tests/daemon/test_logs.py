"""The daemon's own log: colors where they are welcome, times with their zone."""

from __future__ import annotations

import io
import json
from datetime import datetime

import pytest
from stepwarden.clock import SystemClock
from stepwarden.daemon.logs import colored, make_logger
from stepwarden.edge.log_writer import LogWriter


class Terminal(io.StringIO):
    """Says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "xterm", "NO_COLOR": "0"}, False),
        ({"TERM": "dumb"}, False),
    ],
)
def test_colors_are_for_terminals_that_want_them(environ: dict[str, str], expected: bool) -> None:
    assert colored(Terminal(), environ) is expected
    assert not colored(io.StringIO(), environ)


@pytest.mark.parametrize("variable", [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_the_console_log_on_a_terminal_heeds_them(
    monkeypatch: pytest.MonkeyPatch, variable: tuple[str, str]
) -> None:
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    monkeypatch.setenv(*variable)
    writer = LogWriter(terminal)
    make_logger("auto", "info", writer, SystemClock()).warning("something", worker="w")
    writer.close()
    assert "something" in terminal.getvalue()
    assert "\x1b" not in terminal.getvalue()


def test_records_are_stamped_with_a_zone() -> None:
    writer = LogWriter(stream := io.StringIO())
    make_logger("json", "info", writer, SystemClock()).info("something")
    writer.close()
    stamp = datetime.fromisoformat(json.loads(stream.getvalue())["timestamp"])
    assert stamp.utcoffset() is not None
