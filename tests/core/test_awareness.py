"""The daemon doubts itself first: late wake-ups become pauses, and pauses count on no clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.core.awareness import KEPT_PAUSES, LATE_WAKE_SECONDS, Awareness, Pause


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
