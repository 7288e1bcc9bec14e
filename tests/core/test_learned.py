"""The bounds by what is usual: their factors, floors and ceilings, and the respect for the YAML."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.core.learned import Bounds, LearnFrame, bounds
from stepwarden.core.usual import Usual

YAML = Bounds(alarm=316.0, idle_death=346.0, busy_death=1264.0, arithmetic="300 s + 16 s")
FRAME = LearnFrame(window=30.0, floor=10.0, ceiling=1800.0)


def grown(num_tokens: int, seconds: float, steps: int = 50) -> Usual:
    usual = Usual()
    for _ in range(steps + 1):
        usual = usual.learn(num_tokens, seconds)
    return usual


def test_where_nothing_has_been_learned_the_yaml_holds() -> None:
    assert bounds(Usual(), 16, FRAME, YAML) is YAML


def test_five_ten_and_twenty_times_the_usual() -> None:
    found = bounds(grown(16, 20.0), 16, FRAME, YAML)
    assert (found.alarm, found.idle_death, found.busy_death) == (100.0, 200.0, 400.0)


def test_short_steps_are_held_by_the_floors_and_the_window() -> None:
    found = bounds(grown(16, 0.05), 16, FRAME, YAML)
    assert (found.alarm, found.idle_death, found.busy_death) == (10.0, 40.0, 60.0)
    assert found.arithmetic.endswith("= 0.25 s, held at 10 s")


def test_nothing_is_longer_than_the_ceiling_and_its_window() -> None:
    found = bounds(grown(16, 5000.0), 16, FRAME, YAML)
    assert (found.alarm, found.idle_death, found.busy_death) == (1800.0, 1830.0, 1830.0)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_a_young_worker_is_given_what_the_yaml_says_where_that_is_more(steps: int) -> None:
    found = bounds(grown(16, 1.0, steps), 16, FRAME, YAML)
    assert (found.alarm, found.idle_death, found.busy_death) == (316.0, 346.0, 1264.0)
    assert found.arithmetic == "young, so as configured: 300 s + 16 s"


def test_a_size_seen_less_than_three_times_is_young_too() -> None:
    usual = grown(16, 1.0).learn(4096, 2.0).learn(4096, 2.0)
    assert bounds(usual, 4096, FRAME, YAML).alarm == 316.0
    assert bounds(usual.learn(4096, 2.0), 4096, FRAME, YAML).alarm == pytest.approx(10.0, abs=5.0)


def test_a_new_life_is_young_whatever_is_known() -> None:
    assert bounds(grown(16, 1.0).new_life(), 16, FRAME, YAML).alarm == 316.0


def test_slow_times_widen_the_bounds_and_say_so() -> None:
    usual = grown(16, 20.0)
    for _ in range(8):
        usual = usual.learn(16, 38.0)
    found = bounds(usual, 16, FRAME, YAML)
    assert found.alarm > 150.0
    assert "slow of late" in found.arithmetic


@given(st.floats(1e-3, 1e4), st.integers(1, 20), st.integers(1, 1 << 18))
def test_the_order_of_the_three_always_holds(seconds: float, steps: int, asked: int) -> None:
    found = bounds(grown(16, seconds, steps), asked, FRAME, YAML)
    assert FRAME.floor <= found.alarm
    assert found.alarm + FRAME.window <= found.idle_death <= found.busy_death
    assert found.busy_death <= FRAME.ceiling + FRAME.window
