"""How `top` shows workers: texts that fit, whatever is in them; order, filter, rates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.cli.texts import cells
from stepwarden.core.lifecycle import State
from stepwarden.tui import look
from stepwarden.tui.look import ASCII, Columns, Rates, Signs, bar, chosen, fit, orders, row
from stepwarden_proto.v1 import supervisor_pb2 as pb

SIGNS = Signs()


def worker(name: str, state: str = "HEALTHY", **more: object) -> pb.Worker:
    return pb.Worker(name=name, state=state, restarts_limit=5, **more)  # type: ignore[arg-type]


def busy(age: float, budget: float | None = 40.0, ended: int = 0) -> pb.Rank:
    left = None if budget is None else max(0.0, budget - age)
    return pb.Rank(
        name="0",
        step=7,
        num_seqs=16,
        step_age_seconds=age,
        budget_seconds=budget,
        budget_left_seconds=left,
        steps_ended=ended,
        cpu_percent=50.0,
    )


@pytest.mark.parametrize(
    ("age", "budget", "expected"),
    [
        (0.0, 40.0, "............ 0.0/40"),
        (20.0, 40.0, "######....... 20/40"),
        (39.9, 40.0, "############. 40/40"),
        (5000.0, 1800.0, "##########! 83m/30m"),
        (3.25, None, "3.2s"),
    ],
)
def test_bars(age: float, budget: float | None, expected: str) -> None:
    assert bar(age, budget, 19, ASCII) == expected


def test_a_late_step_is_seen_without_colour() -> None:
    assert bar(39.0, 40.0, 18, ASCII) == "###########. 39/40"
    assert bar(40.0, 40.0, 18, ASCII) == "###########! 40/40"
    assert bar(50.0, 40.0, 6, ASCII) == "50/40!"


@given(
    st.floats(0, 1e7),
    st.one_of(st.none(), st.floats(0.001, 1e5)),
    st.integers(17, 60),
)
def test_a_bar_fits(age: float, budget: float | None, width: int) -> None:
    assert cells(bar(age, budget, width, SIGNS)) <= width


@given(st.text(max_size=60), st.integers(0, 40))
def test_every_text_fits_and_is_harmless(text: str, width: int) -> None:
    shown = fit(text, width, SIGNS)
    assert cells(shown) <= width
    assert all(letter.isprintable() for letter in shown)


NAMES = st.text(min_size=1, max_size=40)


@given(st.lists(NAMES, min_size=1, max_size=4), st.integers(60, 200), st.sampled_from(State))
def test_every_line_has_the_width_of_the_screen(names: list[str], width: int, state: State) -> None:
    columns = Columns.for_width(width, names)
    for name in names:
        shown = row(worker(name, state.value), Rates(), columns.widths[Columns.STEP], SIGNS)
        assert cells(columns.line(shown.cells, SIGNS)) <= width


def test_at_eighty_columns_all_is_there() -> None:
    columns = Columns.for_width(80, ["gemma-cpu", "x" * 90])
    rates = Rates()
    shown = row(
        worker("gemma-cpu", "RESTARTING", cause="heartbeat", restart_in_seconds=8.0),
        rates,
        columns.widths[Columns.STEP],
        SIGNS,
    )
    line = columns.line(shown.cells, SIGNS)
    assert line.split() == [
        "gemma-cpu", "RESTARTING", "heartbeat", "again", "in", "8.0s", "-", "-", "-", "0/5"
    ]  # fmt: skip
    assert len(line) == 80


@pytest.mark.parametrize("state", list(State))
def test_every_state_has_a_place_in_the_order_of_urgency(state: State) -> None:
    assert state.value in look._URGENCY
    assert set(look.MOODS) <= set(State)


def test_order_and_filter() -> None:
    workers = [
        worker("a", "HEALTHY", ranks=[busy(10.0)], backend="cpu"),
        worker("b", "FAILED", restarts_used=5, backend="gpu"),
        worker("c", "UNHEALTHY", cause="step", ranks=[busy(41.0)], restarts_used=1),
        worker("d", "HEALTHY", group="tp", ranks=[busy(30.0)]),
    ]

    def names(order: str, wanted: str = "", unwell: bool = False) -> str:
        found = chosen(workers, wanted, orders(Rates())[order], unwell)
        return "".join(w.name for w in found)

    assert names("urgency") == "bcad"
    assert names("file") == "abcd"
    assert names("step") == "cdab"
    assert names("restarts") == "bcad"
    assert names("file", "GPU") == "b"
    assert names("file", "step") == "c"
    assert names("file", "tp") == "d"
    assert names("file", unwell=True) == "bc"
    assert names("file", "nothing") == ""


def test_rates_are_of_the_last_seconds_and_of_one_life() -> None:
    rates = Rates()
    for second in range(20):
        w = worker(
            "w", incarnation="1", ranks=[busy(0.1, ended=second * (2 if second < 10 else 8))]
        )
        rates.add([w], float(second))
    assert rates.of(w) == pytest.approx(8.0)
    w = worker("w", incarnation="2", ranks=[busy(0.1, ended=3)])
    rates.add([w], 20.0)
    assert rates.of(w) is None
    rates.add([w], 21.0)
    assert rates.of(w) == 0.0
    rates.add([], 22.0)
    assert rates.of(w) is None


def test_the_first_line_says_what_is_wrong_first() -> None:
    answer = pb.ListWorkersResponse(workers=[worker("w")], loop_age_seconds=0.2)
    assert look.head_line(None, 0.0, "", 80, SIGNS)[0] == "asking the daemon ..."
    assert look.head_line(answer, 0.5, "", 80, SIGNS) == ("1 worker: 1 HEALTHY", "calm")
    assert look.head_line(answer, 4.0, "", 80, SIGNS) == (
        "as of 4.0s ago: the daemon does not answer",
        "bad",
    )
    gone, mood = look.head_line(answer, 9.0, "no daemon: nobody listens on /x", 80, SIGNS)
    assert (gone, mood) == ("as of 9.0s ago: no daemon: nobody listens on /x", "bad")
    answer.trouble = "the disk is full\x1b[2J"
    assert look.head_line(answer, 0.5, "", 80, SIGNS) == (
        "1 worker: 1 HEALTHY; the disk is full?[2J",
        "warn",
    )
    answer.loop_age_seconds = 7.0
    assert look.head_line(answer, 0.5, "", 80, SIGNS)[1] == "bad"


def test_an_event_of_the_daemon_names_it_once() -> None:
    event = pb.Event(time="2026-01-02T03:04:05.678+01:00", kind="daemon", sentence="serves")
    assert look.event_line(event, 80, SIGNS).rstrip() == "03:04:05 daemon: serves"
    event.kind = "reloaded"
    assert look.event_line(event, 80, SIGNS).rstrip() == "03:04:05 daemon: reloaded: serves"


def test_an_event_on_one_line() -> None:
    event = pb.Event(
        time="2026-01-02T03:04:05.678+01:00",
        worker="w\x1b[1m",
        kind="transition",
        from_state="HEALTHY",
        to_state="DEAD",
        sentence="gone \u6a21\u578b " * 20,
    )
    line = look.event_line(event, 80, SIGNS)
    assert line.startswith("03:04:05 w?[1m: HEALTHY -> DEAD: gone")
    assert cells(line) == 80
