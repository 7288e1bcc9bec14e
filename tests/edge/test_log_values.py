from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.clock import SystemClock
from stepwarden.daemon.logs import make_logger
from stepwarden.edge.log_values import MAX_ITEMS, plain
from stepwarden.edge.log_writer import LogStream, LogWriter
from stepwarden.edge.output_tail import visible

HOSTILE = "a\nb\r\x1b[2J\x1b]0;title\x07\"'\0\u2028\udcff{}%s"


class Unshowable:
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


def _endless() -> list[object]:
    made: list[object] = []
    made.append(made)
    return made


def _strict(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(text, parse_constant=refuse)


@pytest.mark.parametrize(
    "value",
    [
        HOSTILE,
        HOSTILE.encode("utf-8", "surrogateescape"),
        ValueError(HOSTILE),
        Unshowable(),
        {"inside": [Unshowable()]},
        {(1, 2): 3, b"k": 4, Unshowable(): 5},
        float("nan"),
        [float("inf"), -1e400],
        10**10_000,
        object(),
        {1, 2},
        _endless(),
        list(range(10 * MAX_ITEMS)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_o_logs_1_any_value_becomes_strict_json(value: object) -> None:
    line = json.dumps(plain(value), allow_nan=False)
    assert "\n" not in line
    _strict(line)
    shown = json.dumps(plain(value, visible), ensure_ascii=False)
    assert shown.isprintable()


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=10,
)


@given(JSON_VALUES)
def test_what_is_plain_already_stays_as_it_is(value: object) -> None:
    assert plain(value, depth=100) == value


@pytest.mark.parametrize(
    "value", [HOSTILE, ValueError(HOSTILE), HOSTILE.encode("utf-8", "replace")]
)
def test_o_logs_1_hostile_text_is_one_valid_line_of_the_daemons_log(value: object) -> None:
    writer = LogWriter(LogStream(stream := io.StringIO()), SystemClock())
    log = make_logger("json", "info", writer, SystemClock())
    log.warning(HOSTILE, worker=HOSTILE, error=value)
    writer.close()
    (line,) = stream.getvalue().split("\n")[:-1]
    assert line.isprintable()
    record = _strict(line)
    assert record["worker"] == record["event"] == HOSTILE
