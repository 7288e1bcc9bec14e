"""What remains is never negative: stale deadlines, no deadline, and numbers that are none."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.core.deadline import Deadline, ago, apart, clamp_timeout, earliest, elapsed

ANY_FLOAT = st.floats(allow_nan=True, allow_infinity=True)
INSTANTS = st.floats(min_value=0.0, max_value=1e9)


def test_a_deadline_that_passed_5_s_ago_gives_0() -> None:
    stale = Deadline.after(100.0, 10.0)
    assert stale.remaining(115.0) == 0.0
    assert stale.passed(115.0)


def test_none_waits_without_limit_by_explicit_choice() -> None:
    never = Deadline.never()
    assert never.remaining(1e12) is None
    assert not never.passed(1e12)
    assert Deadline.after(5.0, None) == never


@pytest.mark.parametrize(
    ("given_seconds", "used"),
    [
        (None, None),
        (math.inf, None),
        (-math.inf, 0.0),
        (math.nan, 0.0),
        (-1.0, 0.0),
        (-0.0, 0.0),
        (0.0, 0.0),
        (1e-9, 1e-9),
        (30.0, 30.0),
    ],
)
def test_the_lowest_layer_clamps_again(given_seconds: float | None, used: float | None) -> None:
    assert clamp_timeout(given_seconds) == used


@pytest.mark.parametrize("seconds", [-5.0, -math.inf, math.nan, 0.0])
def test_a_deadline_after_a_senseless_time_is_due_at_once(seconds: float) -> None:
    due = Deadline.after(7.0, seconds)
    assert due.at == 7.0
    assert due.passed(7.0)
    assert due.remaining(7.0) == 0.0


def test_a_deadline_after_infinity_is_never() -> None:
    assert Deadline.after(7.0, math.inf) == Deadline.never()


def test_a_deadline_is_passed_from_its_own_instant_on() -> None:
    due = Deadline(10.0)
    assert not due.passed(math.nextafter(10.0, 0.0))
    assert due.passed(10.0)


def test_a_deadline_can_be_kept_out_of_the_past() -> None:
    assert Deadline(3.0).not_before(5.0) == Deadline(5.0)
    assert Deadline(7.0).not_before(5.0) == Deadline(7.0)
    assert Deadline.never().not_before(5.0) == Deadline.never()


@pytest.mark.parametrize(
    ("one", "other", "later"),
    [
        (7.0, 5.0, True),
        (5.0, 7.0, False),
        (5.0, 5.0, False),
        (None, 5.0, True),
        (5.0, None, False),
        (None, None, False),
    ],
)
def test_which_of_two_gives_more_time(one: float | None, other: float | None, later: bool) -> None:
    assert Deadline(one).later_than(Deadline(other)) == later


def test_several_answers_share_one_absolute_deadline() -> None:
    """The first answer takes 4 of 5 seconds; the others have what is left, and then nothing."""
    shared = Deadline.after(100.0, 5.0)
    assert shared.remaining(104.0) == pytest.approx(1.0)
    assert shared.remaining(105.0) == 0.0
    assert shared.remaining(109.0) == 0.0


@pytest.mark.parametrize(
    ("deadlines", "first"),
    [
        ((), None),
        ((Deadline.never(),), None),
        ((Deadline(3.0), Deadline.never(), Deadline(2.0)), 2.0),
        ((Deadline(-1.0), Deadline(0.0)), -1.0),
    ],
)
def test_the_earliest_deadline_counts(deadlines: tuple[Deadline, ...], first: float | None) -> None:
    assert earliest(*deadlines).at == first


def test_the_arithmetic_of_instants() -> None:
    assert elapsed(3.0, 5.0) == 2.0
    assert elapsed(5.0, 3.0) == 0.0
    assert ago(2.0, 5.0) == 3.0
    assert ago(-2.0, 5.0) == 5.0
    assert ago(math.nan, 5.0) == 5.0
    assert apart(2.0, 5.0) == apart(5.0, 2.0) == 3.0


@given(now=INSTANTS, later=INSTANTS, seconds=st.none() | ANY_FLOAT)
def test_no_wait_is_ever_negative(now: float, later: float, seconds: float | None) -> None:
    rest = Deadline.after(now, seconds).remaining(later)
    assert rest is None or rest >= 0.0
    assert rest is not None or seconds is None or seconds == math.inf


@given(seconds=st.none() | ANY_FLOAT)
def test_a_clamped_timeout_is_none_or_a_number_of_seconds(seconds: float | None) -> None:
    used = clamp_timeout(seconds)
    assert used is None or (0.0 <= used < math.inf)
    assert clamp_timeout(used) == used


@given(since=INSTANTS, now=INSTANTS)
def test_no_length_of_time_is_negative(since: float, now: float) -> None:
    assert elapsed(since, now) >= 0.0
    assert apart(since, now) == max(elapsed(since, now), elapsed(now, since))
