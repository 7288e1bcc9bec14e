"""What is usual: learned from honest steps, not spoilt by odd ones, quick to see a new regime."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.core.usual import CREDIT, MEMORY, ROWS, SLOW_MAX, Row, Usual, row_of, size_of

times = st.floats(1e-4, 1e4)
sizes = st.integers(1, 1 << 20)


def taught(*steps: tuple[int, float]) -> Usual:
    """Past the first step of its life, and then these."""
    usual = Usual().learn(1, 1.0)
    for num_tokens, seconds in steps:
        usual = usual.learn(num_tokens, seconds)
    return usual


def mean(usual: Usual, num_tokens: int) -> float:
    guess = usual.guess(num_tokens)
    assert guess is not None
    return guess.seconds


@pytest.mark.parametrize(
    ("tokens", "row"), [(-1, 0), (0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (1 << 17, 17)]
)
def test_a_row_reaches_to_the_next_power_of_two(tokens: int, row: int) -> None:
    assert row_of(tokens) == row
    assert tokens <= size_of(row)


def test_there_are_eighteen_rows_and_the_last_takes_all_that_is_larger() -> None:
    assert ROWS == 18
    assert row_of(1 << 40) == ROWS - 1


def test_nothing_is_known_at_first() -> None:
    assert Usual().guess(1) is None


def test_the_first_step_of_a_life_teaches_nothing() -> None:
    assert Usual().learn(64, 500.0).guess(64) is None
    after = taught((64, 2.0)).new_life().learn(64, 500.0)
    assert mean(after, 64) == 2.0


def test_the_mean_runs_with_a_memory_of_32() -> None:
    usual = taught(*[(8, 1.0)] * 100)
    assert mean(usual.learn(8, 2.0), 8) == pytest.approx(1.0 + 1.0 / MEMORY)
    assert mean(taught((8, 1.0), (8, 2.0)), 8) == pytest.approx(1.5)


def test_one_odd_step_counts_as_twice_the_usual() -> None:
    usual = taught(*[(8, 1.0)] * 100)
    assert mean(usual.learn(8, 9.0), 8) == pytest.approx(1.0 + (CREDIT - 1.0) / MEMORY)


def test_a_hung_step_counts_for_nothing() -> None:
    usual = taught(*[(8, 1.0)] * 100)
    after = usual.learn(8, 3600.0)
    assert after.rows == usual.rows
    assert after.slow == usual.slow


def test_the_third_in_a_row_is_a_new_regime() -> None:
    usual = taught(*[(8, 1.0)] * 100)
    two = usual.learn(8, 50.0).learn(8, 50.0)
    assert two.rows == usual.rows
    assert mean(two.learn(8, 50.0), 8) == pytest.approx(1.0 + 49.0 / MEMORY)


def test_an_ordinary_step_between_them_begins_the_row_anew() -> None:
    usual = taught(*[(8, 1.0)] * 100)
    broken = usual.learn(8, 50.0).learn(8, 50.0).learn(8, 1.0).learn(8, 50.0)
    assert broken.over == 1
    assert mean(broken, 8) < 1.1


def test_a_new_regime_is_learned_within_a_few_dozen_steps() -> None:
    usual = taught(*[(8, 1.0)] * 100, *[(8, 20.0)] * 100)
    assert mean(usual, 8) == pytest.approx(20.0, rel=0.06)


def test_slow_follows_within_some_eight_steps() -> None:
    usual = taught(*[(8, 1.0)] * 100, *[(8, 1.9)] * 8)
    assert 1.4 < usual.slow <= 1.9
    assert taught(*[(8, 1.0)] * 100, *[(8, 100.0)] * 30).slow <= SLOW_MAX


def test_an_unseen_row_is_reasoned_from_its_neighbours() -> None:
    only_small = taught((4, 1.0))
    assert mean(only_small, 8) == 2.0
    assert mean(only_small, 16) == 4.0
    assert mean(only_small, 2) == 1.0  # only a bigger one is known: as that
    both = taught((4, 1.0), (32, 3.0))
    assert mean(both, 8) == 2.0
    assert mean(both, 16) == 3.0  # by size 4 s, at most as the bigger one
    assert mean(taught((4, 5.0), (16, 3.0)), 8) == 5.0  # never below the smaller one


def test_the_grounds_name_the_steps_behind_them() -> None:
    seen, unseen = taught((8, 1.0), (8, 1.0)).guess(5), taught((8, 1.0)).guess(16)
    assert seen is not None
    assert unseen is not None
    assert (seen.steps, seen.grounds) == (2, "usual 1 s of 2 steps up to 8 tokens")
    assert (unseen.steps, unseen.grounds) == (0, "about 2 s, reasoned from steps of other sizes")


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan])
def test_a_time_that_is_none_teaches_nothing(seconds: float) -> None:
    usual = taught((8, 1.0))
    assert usual.learn(8, seconds).rows == usual.rows


@given(st.lists(st.tuples(sizes, times), max_size=60), sizes)
def test_it_stays_finite_positive_and_within_what_was_seen(
    steps: list[tuple[int, float]], asked: int
) -> None:
    usual = taught(*steps)
    assert 1.0 <= usual.slow <= SLOW_MAX
    assert len(usual.rows) == ROWS
    for row in usual.rows:
        if row is not None:
            assert isinstance(row, Row)
            assert 0.0 < row.mean <= max(seconds for _, seconds in steps)
    guess = usual.guess(asked)
    assert (guess is None) == (not steps)
    assert guess is None or (math.isfinite(guess.seconds) and guess.seconds > 0.0)
