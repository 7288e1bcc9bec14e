"""The published policy: cpu above gpu, growing with the batch, never above the maximum."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.core.budget import SHIPPED, Formula, Rows, StepRule, hard_cap
from stepwarden.core.policy import HardCaps, WorkerPolicy

CPU, GPU = SHIPPED["cpu"], SHIPPED["gpu"]

seconds = st.floats(0, 1e5, allow_nan=False)
batches = st.integers(1, 200_000)
tokens = st.none() | st.integers(0, 1_000_000)
formulas = st.builds(Formula, seconds, st.floats(0, 100), st.floats(0, 1), st.floats(0.1, 1e5))


@st.composite
def row_tables(draw: st.DrawFn) -> Rows:
    sizes = sorted(draw(st.sets(st.integers(1, 100_000), min_size=1, max_size=8)))
    values = sorted(draw(st.lists(seconds, min_size=len(sizes), max_size=len(sizes))))
    beyond = draw(st.none() | st.floats(values[-1], 2e5))
    per_token, maximum = draw(st.floats(0, 1)), draw(st.floats(0.1, 1e5))
    return Rows(tuple(zip(sizes, values, strict=True)), beyond, per_token, maximum)


rules: st.SearchStrategy[StepRule] = formulas | row_tables()


def test_the_published_numbers() -> None:
    assert CPU.budget(16, None).seconds == 316.0
    assert GPU.budget(64, None).seconds == pytest.approx(42.8)
    assert WorkerPolicy("w", step=GPU).step_cap(42.8) == pytest.approx(171.2)
    assert WorkerPolicy("w", step=CPU).step_cap(316.0) == 1264.0


def test_cpu_is_above_gpu_while_gpu_is_below_max_and_never_below_it() -> None:
    """Every batch from 1 to 100 000."""
    for batch in range(1, 100_001):
        cpu, gpu = CPU.budget(batch, None).seconds, GPU.budget(batch, None).seconds
        assert cpu >= gpu, batch
        assert (cpu > gpu) == (batch <= 8849), batch
        assert cpu <= 1800.0, batch
        assert gpu <= 1800.0, batch


@pytest.mark.parametrize("rule", [CPU, GPU], ids=["cpu", "gpu"])
def test_a_larger_batch_never_has_a_smaller_budget_in_the_shipped_rules(rule: Formula) -> None:
    """Every batch from 1 to 100 000."""
    budgets = (rule.budget(batch, None).seconds for batch in range(1, 100_001))
    assert all(small <= large for small, large in itertools.pairwise(budgets))


@given(rules, batches, batches, tokens)
def test_budgets_grow_with_the_batch(
    rule: StepRule, one: int, other: int, count: int | None
) -> None:
    small, large = sorted((one, other))
    assert rule.budget(small, count).seconds <= rule.budget(large, count).seconds


@given(rules, batches, tokens, tokens)
def test_budgets_grow_with_the_tokens(
    rule: StepRule, batch: int, one: int | None, other: int | None
) -> None:
    small, large = sorted((one or 0, other or 0))
    assert rule.budget(batch, small).seconds <= rule.budget(batch, large).seconds


@given(rules, batches, tokens)
def test_budgets_stay_between_the_smallest_and_the_maximum(
    rule: StepRule, batch: int, count: int | None
) -> None:
    budget = rule.budget(batch, count)
    assert rule.smallest() <= budget.seconds <= rule.maximum
    assert f"{budget.seconds:g} s" in budget.arithmetic


@given(row_tables(), st.data())
def test_the_next_row_up_holds(rows: Rows, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(rows.rows) - 1))
    batch, value = rows.rows[at]
    lowest = rows.rows[at - 1][0] + 1 if at else 1
    asked = data.draw(st.integers(lowest, batch))
    assert rows.budget(asked, None).seconds == min(value, rows.maximum)
    last = rows.rows[-1]
    beyond = last[1] if rows.beyond is None else rows.beyond
    assert rows.budget(last[0] + 1, None).seconds == min(beyond, rows.maximum)


@given(
    seconds,
    st.floats(0.1, 3600),
    st.floats(1, 1000),
    st.floats(0.1, 1e5),
    st.none() | st.floats(0.1, 1e6),
)
def test_a_hard_cap_always_leaves_room_for_the_first_window(
    budget: float, window: float, factor: float, maximum: float, override: float | None
) -> None:
    cap = hard_cap(budget, window, factor, maximum, override)
    assert cap >= budget + window
    if override is not None:
        assert cap == max(budget + window, override)
    else:
        assert cap <= max(budget + window, maximum)


@given(rules, batches, batches, st.none() | st.floats(0.1, 1e5))
def test_caps_of_a_worker_grow_with_the_budget(
    rule: StepRule, one: int, other: int, override: float | None
) -> None:
    policy = WorkerPolicy("w", step=rule, hard_caps=HardCaps(step=override))
    small, large = sorted((one, other))
    budgets = [policy.step_budget(batch, None).seconds for batch in (small, large)]
    caps = [policy.step_cap(budget) for budget in budgets]
    assert caps[0] <= caps[1]
    assert all(cap >= budget + policy.window for cap, budget in zip(caps, budgets, strict=True))


@given(st.none() | st.integers(-5, 0))
def test_an_unknown_batch_takes_the_workers_largest(batch: int | None) -> None:
    policy = WorkerPolicy("w", step=CPU, max_num_seqs=40)
    assert policy.step_budget(batch, None).seconds == 340.0
