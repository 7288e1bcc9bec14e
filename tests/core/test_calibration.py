"""Budgets made from what was seen cover every size of it, and cost as little as they can."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.core.calibration import SeenSize, formula, rows, seen_in
from stepwarden.core.usual import ROWS, Row, Usual, size_of

MAXIMUM = 1e9
tables = st.lists(
    st.none() | st.builds(Row, st.floats(1e-4, 1e4), st.integers(1, 10**6)),
    min_size=ROWS,
    max_size=ROWS,
).map(lambda found: Usual(tuple(found)))


def table(**means: float) -> Usual:
    """`t8=1.5`: a step of up to 8 tokens takes 1.5 s."""
    by_size = {int(name[1:]): mean for name, mean in means.items()}
    found = [Row(by_size[size_of(p)], 10) if size_of(p) in by_size else None for p in range(ROWS)]
    return Usual(tuple(found))


def test_a_row_is_seen_from_its_smallest_size() -> None:
    assert seen_in([table(t1=0.1, t8=1.5)]) == (SeenSize(1, 1, 0.1, 10), SeenSize(5, 8, 1.5, 10))


def test_of_several_ranks_the_slowest_counts_and_all_their_steps() -> None:
    assert seen_in([table(t8=1.0), table(t8=1.5), Usual()]) == (SeenSize(5, 8, 1.5, 20),)


def test_the_formula_is_the_line_through_what_rises() -> None:
    made = formula(seen_in([table(t1=1.0, t1024=52.2)]), 5.0, 1.0, MAXIMUM)
    assert made.base == pytest.approx(4.5, abs=0.5)
    assert made.per_seq == 0.0
    assert made.per_token == pytest.approx(0.5, rel=0.01)
    assert made.budget(1, 513).seconds == pytest.approx(261.0, rel=0.02)


def test_what_does_not_rise_needs_no_token() -> None:
    made = formula(seen_in([table(t1=3.0, t64=2.0)]), 5.0, 1.0, MAXIMUM)
    assert (made.base, made.per_token) == (15.0, 0.0)


def test_rows_are_by_sequences_and_prompts_pay_by_token() -> None:
    made = rows(seen_in([table(t1=1.0, t8=2.0, t4096=30.0)]), 5.0, 1.0, MAXIMUM, 64)
    assert made.rows == ((1, 5.0), (8, 10.0))
    assert made.per_token == pytest.approx(1.0, rel=0.01)
    assert made.budget(1, 2049).seconds >= 150.0


@given(tables, st.floats(1.0, 100.0), st.floats(0.1, 100.0), st.integers(1, 1 << 17))
def test_every_size_that_was_seen_is_covered_with_the_factor(
    usual: Usual, factor: float, floor: float, batch: int
) -> None:
    seen = seen_in([usual])
    if not seen:
        return
    for made in (
        formula(seen, factor, floor, MAXIMUM),
        rows(seen, factor, floor, MAXIMUM, batch),
    ):
        assert made.smallest() >= floor
        for one in seen:
            for tokens in (one.least, one.most):
                for seqs in (1, min(batch, tokens)):
                    assert made.budget(seqs, tokens).seconds >= factor * one.seconds * (1 - 1e-9)
