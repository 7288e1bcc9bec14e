"""What `status NAME` makes of a worker's events."""

from __future__ import annotations

from stepwarden.cli import history
from stepwarden_proto.v1 import supervisor_pb2 as pb

T = "2026-01-02T03:04:{:02}.000+01:00"


def event(second: int, kind: str, life: str, **more: str) -> pb.Event:
    return pb.Event(
        id=second,
        time=T.format(second),
        monotonic=float(second),
        kind=kind,
        incarnation=life,
        **more,
    )


def move(second: int, life: str, old: str, new: str, cause: str = "", text: str = "") -> pb.Event:
    return event(
        second, "transition", life, from_state=old, to_state=new, cause=cause, sentence=text
    )


TOLD = [
    move(1, "1", "STOPPED", "STARTING"),
    event(2, "started", "1"),
    move(3, "1", "STARTING", "HEALTHY"),
    event(5, "false_alarm", "1", sentence="late by 2 s"),
    move(10, "1", "HEALTHY", "UNHEALTHY", "step"),
    move(12, "1", "UNHEALTHY", "DEAD", "step", "step 7 hung"),
    move(13, "1", "DEAD", "RESTARTING", "step"),
    move(20, "2", "RESTARTING", "STARTING"),
    move(40, "2", "HEALTHY", "STOPPING", "", "the operator says stop"),
    move(41, "2", "STOPPING", "STOPPED"),
    move(50, "3", "STOPPED", "STARTING"),
]


def test_lives_with_their_ends_and_uptimes_the_newest_first() -> None:
    third, second, first = history.lives(TOLD)
    assert (first.incarnation, first.uptime, first.cause) == ("1", 11.0, "step")
    assert (first.how, first.sentence, first.false_alarms) == ("death", "step 7 hung", 1)
    assert (second.uptime, second.how, second.cause) == (20.0, "stop", "")
    assert (third.ended, third.uptime) == ("", None)
    lines = history.life_lines([third, second, first], alive="3")
    assert [line.split() for line in lines[1:]] == [
        ["3", "2026-01-02", "03:04:50", "alive", "0", "-"],
        ["2", "2026-01-02", "03:04:20", "20.0s", "0", "stop"],
        ["1", "2026-01-02", "03:04:01", "11.0s", "1", "death", "(step)"],
    ]


def test_a_life_that_ended_unseen_is_not_called_alive() -> None:
    (line,) = history.life_lines(history.lives(TOLD[-1:]), alive="")[1:]
    assert "alive" not in line


def test_no_uptime_is_made_up_over_a_boot_of_the_host() -> None:
    (life,) = history.lives([event(30, "started", "1"), move(4, "1", "HEALTHY", "DEAD", "exit")])
    assert life.uptime is None


def test_the_newest_verdicts_with_their_sentences() -> None:
    assert [e.id for e in history.verdicts(TOLD, 2)] == [41, 50]
    assert history.verdicts(TOLD, 0) == []
    assert "started" not in {e.kind for e in history.verdicts(TOLD, 100)}
    text = "step 7 \x1b[31mhung " + "long " * 30
    lines = history.verdict_lines([move(1, "1", "UNHEALTHY", "DEAD", "step", text)])
    assert lines[0] == "  2026-01-02 03:04:01 UNHEALTHY -> DEAD (step)"
    assert all(len(line) <= 80 and "\x1b" not in line for line in lines)


def test_json_has_nulls_and_no_inner_numbers() -> None:
    found = history.as_dict(TOLD, 1)
    assert found["verdicts"][0]["to_state"] == "STARTING"
    assert found["lives"][0] == {
        "incarnation": "3",
        "began": T.format(50),
        "ended": None,
        "how": None,
        "cause": None,
        "sentence": None,
        "false_alarms": 0,
        "uptime_seconds": None,
    }
