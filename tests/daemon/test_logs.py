"""The daemon's own log: colors where they are welcome, times with their zone."""

from __future__ import annotations

import io
import json
from datetime import datetime

import pytest
from stepwarden.clock import SystemClock
from stepwarden.daemon.logs import colored, make_logger
from stepwarden.edge.log_writer import LogStream, LogWriter


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
    writer = LogWriter(LogStream(terminal), SystemClock())
    make_logger("auto", "info", writer, SystemClock()).warning("something", worker="w")
    writer.close()
    assert "something" in terminal.getvalue()
    assert "\x1b" not in terminal.getvalue()


def test_records_are_stamped_with_a_zone() -> None:
    writer = LogWriter(LogStream(stream := io.StringIO()), SystemClock())
    make_logger("json", "info", writer, SystemClock()).info("something")
    writer.close()
    stamp = datetime.fromisoformat(json.loads(stream.getvalue())["timestamp"])
    assert stamp.utcoffset() is not None


class Unshowable(Exception):
    """Raises when it is shown."""

    def __str__(self) -> str:
        raise RuntimeError("never")

    __repr__ = __str__


HOSTILE = {
    "nan": float("nan"),
    "infinite": float("-inf"),
    "huge": 10**400,
    "bytes": b"\x88\xff\x00",
    "keys": {b"a": 1, 2: {"deep": [object()] * 500}},
    "text": 'a\nb\x1b[31m\x00"quoted" \u2028 \ud800',
    "error": Unshowable(),
    "loop": [],
}


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_o_logs_1_a_record_of_anything_is_one_line_and_never_raises(log_format: str) -> None:
    loop: list[object] = []
    loop.append(loop)
    writer = LogWriter(LogStream(stream := io.StringIO()), SystemClock())
    log = make_logger(log_format, "info", writer, SystemClock())
    log.warning("something\nelse", **(HOSTILE | {"loop": loop}))
    log.error("fault", exc_info=Unshowable())
    log.info("later")
    writer.close()
    text = stream.getvalue()
    assert "later" in text
    assert "\x00" not in text
    assert "\x1b[31ma" not in text
    if log_format == "json":
        records = [json.loads(line, parse_constant=pytest.fail) for line in text.splitlines()]
        assert len(records) == 3
        assert records[0]["event"] == "something\nelse"
        assert records[0]["keys"]["a"] == 1
