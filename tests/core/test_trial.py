"""Does a table fit the first steps of a life, and does it come back as it was kept?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.core.subject import Subject, ranges
from stepwarden.core.trial import MOST, STEPS, Trial
from stepwarden.core.usual import ROWS, SLOW_MAX, Row, Usual
from stepwarden.edge.learned_text import from_text, key_of, subject_of_key, to_text

rows = st.none() | st.builds(Row, st.floats(1e-6, 1e6), st.integers(1, 10**9))
tables = st.builds(
    Usual,
    rows=st.lists(rows, min_size=ROWS, max_size=ROWS).map(tuple),
    slow=st.floats(1.0, SLOW_MAX),
)


def tried(*steps: tuple[float, float]) -> Trial:
    trial = Trial()
    for usual, seconds in steps:
        trial = trial.with_step(usual, seconds)
    return trial


def test_it_is_over_after_the_first_steps_and_not_before() -> None:
    assert not tried(*[(1.0, 100.0)] * (STEPS - 1)).over
    assert tried(*[(1.0, 100.0)] * (STEPS - 1)).misfit is None
    assert tried(*[(1.0, 100.0)] * STEPS).misfit == 100.0


@pytest.mark.parametrize("seconds", [10.0 * MOST, 10.0 / MOST, 10.0])
def test_up_to_four_times_either_way_it_fits(seconds: float) -> None:
    assert tried(*[(10.0, seconds)] * STEPS).misfit is None


@pytest.mark.parametrize("seconds", [10.0 * MOST + 1, 10.0 / MOST - 0.1])
def test_beyond_it_does_not(seconds: float) -> None:
    assert tried(*[(10.0, seconds)] * STEPS).misfit == pytest.approx(seconds / 10.0)


def test_the_median_decides() -> None:
    assert tried((10.0, 900.0), (10.0, 9.0), (10.0, 11.0)).misfit is None


def test_times_below_a_second_are_all_the_same() -> None:
    assert tried(*[(0.001, 0.9)] * STEPS).misfit is None
    assert tried(*[(0.9, 0.001)] * STEPS).misfit is None


@given(tables)
def test_a_table_comes_back_as_it_was_kept_in_some_hundred_bytes(usual: Usual) -> None:
    text = to_text(usual)
    assert len(text) < 700
    told = from_text(text)
    assert told is not None
    assert told.slow == pytest.approx(usual.slow, rel=1e-3)
    for kept, row in zip(told.rows, usual.rows, strict=True):
        assert (kept is None) == (row is None)
        if kept is not None and row is not None:
            assert kept.steps == row.steps
            assert kept.mean == pytest.approx(row.mean, rel=1e-3)
    assert to_text(told) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"rows":[[18,1.0,1]]}',
        '{"rows":[[0,-1.0,1]]}',
        '{"rows":[[0,NaN,1]]}',
        '{"rows":[[0,1.0,-1]]}',
        '{"rows":[[0,1.0]]}',
        '{"rows":[[true,1.0,1]]}',
        '{"rows":[[0,"1",1]]}',
        '{"rows":[],"slow":"much"}',
        "[" * 100_000,
    ],
)
def test_what_no_version_wrote_is_nothing(text: str) -> None:
    assert from_text(text) is None


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    from_text(data.decode(errors="replace"))
    subject_of_key(data.decode(errors="replace"))


def test_a_key_comes_back_and_a_long_text_is_told_by_its_digest() -> None:
    subject = Subject("w", "rank0", "google/gemma", "vllm", "0.33", "bfloat16", "cpu", "0-3,8")
    assert subject_of_key(key_of(subject)) == subject
    assert subject.sentence() == "google/gemma, vllm 0.33, bfloat16, cpu, CPUs 0-3,8"
    one, other = Subject("w", "0", "x" * 5000), Subject("w", "0", "x" * 5001)
    assert key_of(one) != key_of(other)
    assert len(key_of(one)) < 200
    assert subject_of_key('["too", "short"]') is None
    assert subject_of_key("[1,2,3,4,5,6,7,8]") is None


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((), ""), ((3,), "3"), ((0, 1, 2, 3, 8), "0-3,8"), ((5, 3, 4, 9, 10), "3-5,9-10")],
)
def test_cpus_are_written_as_people_do(numbers: tuple[int, ...], text: str) -> None:
    assert ranges(frozenset(numbers)) == text
