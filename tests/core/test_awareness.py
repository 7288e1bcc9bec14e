"""The daemon doubts itself first: late wake-ups become pauses, and pauses count on no clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.core.awareness import (
    KEPT_PAUSES,
    LAG_SECONDS,
    LATE_WAKE_SECONDS,
    MOST_DOUBT,
    Awareness,
    Doubts,
    Pause,
)
from stepwarden.core.clocks import Cause, RunningClock
from stepwarden.core.deadline import Deadline
from stepwarden.core.verdict import open_suspicion


def test_a_wake_up_in_time_is_no_pause() -> None:
    awareness = Awareness()
    assert awareness.woke(10.0, 10.0 + LATE_WAKE_SECONDS) is awareness
    assert awareness.woke(10.0, 9.0) is awareness


def test_a_late_wake_up_is_a_pause_since_it_was_due() -> None:
    assert Awareness().woke(10.0, 25.0).pauses == (Pause(10.0, 25.0),)


@pytest.mark.parametrize(
    ("since", "now", "lost"),
    [
        (0.0, 100.0, 20.0),  # both pauses
        (15.0, 100.0, 15.0),  # it began inside the first
        (20.0, 100.0, 10.0),
        (25.0, 30.0, 0.0),
        (0.0, 12.0, 2.0),  # as of an instant inside a pause
        (50.0, 100.0, 0.0),
        (100.0, 0.0, 0.0),
    ],
)
def test_only_the_part_since_a_clock_began_is_lost(since: float, now: float, lost: float) -> None:
    awareness = Awareness((Pause(10.0, 20.0), Pause(40.0, 50.0)))
    assert awareness.lost(since, now) == lost


def test_old_pauses_are_forgotten() -> None:
    awareness = Awareness((Pause(10.0, 20.0), Pause(40.0, 50.0)))
    assert awareness.forget_before(20.0) is awareness
    assert awareness.forget_before(20.1).pauses == (Pause(40.0, 50.0),)


def test_many_pauses_stay_few_and_lose_nothing() -> None:
    awareness = Awareness()
    for index in range(KEPT_PAUSES + 50):
        awareness = awareness.woke(10.0 * index, 10.0 * index + 2.0)
    assert len(awareness.pauses) == KEPT_PAUSES
    assert awareness.lost(0.0, 1e9) >= 2.0 * (KEPT_PAUSES + 50)


@given(
    gaps=st.lists(st.tuples(st.floats(0.0, 5.0), st.floats(0.0, 20.0)), max_size=20),
    since=st.floats(0.0, 200.0),
)
def test_no_more_is_lost_than_has_passed(gaps: list[tuple[float, float]], since: float) -> None:
    awareness, now = Awareness(), 0.0
    for rest, late in gaps:
        awareness = awareness.woke(now + rest, now + rest + late)
        now += rest + late
    lost = awareness.lost(since, now)
    assert 0.0 <= lost <= max(0.0, now - since) + 1e-6
    assert awareness.forget_before(since).lost(since, now) == pytest.approx(lost)


def bad(awareness: Awareness, times: int) -> Awareness:
    for _ in range(times):
        awareness = awareness.looked(Doubts(pressed=True), 0.0)
    return awareness


@pytest.mark.parametrize(
    ("doubts", "reasons"),
    [
        (Doubts(), ()),
        (Doubts(lag=LAG_SECONDS), ()),
        (Doubts(lag=LAG_SECONDS + 0.01), ("our own loop is late",)),
        (Doubts(pressed=True), ("the host is under pressure",)),
        (Doubts(silence=True), ("most workers are silent at once",)),
    ],
)
def test_what_raises_the_score(doubts: Doubts, reasons: tuple[str, ...]) -> None:
    after = Awareness().looked(doubts, 0.0)
    assert after.score == (1 if reasons else 0)
    assert after.why == reasons


@pytest.mark.parametrize(("seconds", "score"), [(0.6, 1), (1.0, 2), (2.5, 3), (60.0, 4)])
def test_a_pause_raises_it_by_its_seconds_and_no_more_than_four(seconds: float, score: int) -> None:
    after = Awareness().woke(10.0, 10.0 + seconds)
    assert after.score == score
    assert after.why == ("our own loop stood still",)


def test_the_score_stays_within_0_and_8() -> None:
    awareness = bad(Awareness(), 20)
    assert awareness.score == MOST_DOUBT
    now = 0.0
    for _ in range(200):
        now += 1.0
        awareness = awareness.looked(Doubts(), now)
    assert awareness.score == 0
    assert awareness.why == ()


def test_five_good_seconds_in_a_row_take_one_off() -> None:
    awareness = bad(Awareness(), 2).looked(Doubts(), 10.0)
    assert awareness.looked(Doubts(), 14.9).score == 2
    assert awareness.looked(Doubts(), 15.0).score == 1
    interrupted = awareness.looked(Doubts(pressed=True), 14.0).looked(Doubts(), 15.0)
    assert interrupted.score == 3


@pytest.mark.parametrize(("points", "factor"), [(0, 1.0), (1, 1.25), (4, 2.0), (8, 3.0)])
def test_windows_are_longer_by_a_quarter_for_each_point(points: int, factor: float) -> None:
    assert 30.0 + bad(Awareness(), points).longer(30.0) == pytest.approx(30.0 * factor)


def test_doubt_lengthens_the_window_and_never_moves_the_hard_cap() -> None:
    clock = RunningClock("0", Cause.STEP, 0.0, 10.0, Deadline(10.0), 60.0, 60.0, "")
    suspicion = open_suspicion(clock, 30.0, None, 10.0)
    longer = bad(Awareness(), MOST_DOUBT).longer(30.0)
    assert suspicion.due(0.0) == Deadline(40.0)
    assert suspicion.due(0.0, longer) == Deadline(60.0)
