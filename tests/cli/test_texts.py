from __future__ import annotations

import pytest
from stepwarden.cli.events import text_line
from stepwarden.cli.status import overview
from stepwarden.cli.texts import cells, duration, plain, table
from stepwarden_proto.v1 import supervisor_pb2 as pb


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0, "0.0s"),
        (12.34, "12.3s"),
        (99.96, "1m40s"),
        (245.0, "4m05s"),
        (3599.7, "1h00m"),
        (11_220.0, "3h07m"),
        (187_200.0, "2d04h"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert plain("a\x1b[2Jb\nc\x00\x9b d") == "a?[2Jb c?? d"
    event = pb.Event(time="t", worker="w", kind="refused", sentence="\x1b]0;evil\x07")
    assert "\x1b" not in text_line(event)


def test_the_rank_of_an_event_is_a_column_as_the_others_are() -> None:
    event = pb.Event(time="t", worker="w", kind="attached", rank="0", sentence="it is there")
    assert text_line(event) == "t  w  attached  rank 0  it is there"


def test_a_long_name_stands_on_its_own_line_and_the_table_stays_narrow() -> None:
    lines = table(("NAME", "STATE"), [("a", "HEALTHY"), ("x" * 90, "DEAD")], 80)
    assert lines == ["NAME  STATE", "a     HEALTHY", "x" * 90, "      DEAD"]


def test_wide_characters_take_two_columns_and_combining_ones_none() -> None:
    assert [cells(text) for text in ("abc", "\u6a21\u578b", "e\u0301", "")] == [3, 4, 1, 0]
    lines = table(("NAME", "STATE"), [("\u6a21\u578b", "HEALTHY"), ("abcd", "DEAD")], 80)
    assert lines[1] == "\u6a21\u578b  HEALTHY"


def test_no_workers() -> None:
    assert overview(pb.ListWorkersResponse()) == ["no workers are configured"]


def test_a_daemon_whose_loop_stands_is_told() -> None:
    answer = pb.ListWorkersResponse(workers=[pb.Worker(name="w", state="HEALTHY")])
    answer.loop_age_seconds = 7.0
    assert "last turned 7.0s ago" in overview(answer)[-1]


def test_the_rank_with_the_least_left_is_shown() -> None:
    ranks = [
        pb.Rank(name="0", step=5, step_age_seconds=1.0, budget_left_seconds=9.0),
        pb.Rank(name="1", step=4, step_age_seconds=2.0, budget_left_seconds=-3.0),
        pb.Rank(name="2"),
    ]
    worker = pb.Worker(name="w", state="UNHEALTHY", sentence="late " * 30, ranks=ranks)
    lines = overview(pb.ListWorkersResponse(workers=[worker]))
    assert " 4 " in lines[1]
    assert all(len(line) <= 80 for line in lines)
    assert lines[2].startswith("w: late")


def test_a_diagnosis_that_the_verdict_does_not_tell_has_a_line_of_its_own() -> None:
    late = pb.Worker(name="w", state="UNHEALTHY", sentence="late", diagnosis="waiting", grounds="g")
    assert "w: diagnosis waiting: g" in overview(pb.ListWorkersResponse(workers=[late]))
    late.sentence = "late; diagnosis waiting: f"
    assert "w: diagnosis waiting: g" not in overview(pb.ListWorkersResponse(workers=[late]))
    rests = pb.Worker(name="w", state="HEALTHY", diagnosis="idle", grounds="nothing")
    assert not any("idle" in line for line in overview(pb.ListWorkersResponse(workers=[rests])))
