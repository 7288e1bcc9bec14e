"""The restart budget: two ways to spend it, one way to earn it back, and the delay between."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.core.policy import RestartPolicy
from stepwarden.core.restarts import Ledger, delay, record_death, spent, wants_restart

POLICY = RestartPolicy(
    delay=1.0, factor=2.0, max_delay=4.0, jitter=0.0, limit=3, within=60.0, stable=30.0
)


def dying(policy: RestartPolicy, *deaths: tuple[float, float]) -> Ledger:
    """A ledger after deaths at (instant, uptime)."""
    ledger = Ledger()
    for at, uptime in deaths:
        ledger = record_death(ledger, policy, uptime, at)
    return ledger


def test_a_fresh_worker_has_its_whole_budget() -> None:
    assert Ledger().used(POLICY, 0.0) == 0
    assert not spent(Ledger(), POLICY, 0.0)


def test_limit_deaths_within_the_time_spend_it() -> None:
    ledger = dying(POLICY, (0.0, 1.0), (10.0, 1.0))
    assert not spent(ledger, POLICY, 10.0)
    assert spent(record_death(ledger, POLICY, 1.0, 20.0), POLICY, 20.0)


def test_limit_deaths_in_a_row_spend_it_whatever_time_they_took() -> None:
    ledger = dying(POLICY, (0.0, 1.0), (1e6, 29.9), (2e6, 1.0))
    assert ledger.used(POLICY, 2e6) == 3
    assert spent(ledger, POLICY, 3e6)


@pytest.mark.parametrize("uptime", [30.0, 31.0, 1e9])
def test_stable_uptime_gives_it_back(uptime: float) -> None:
    ledger = dying(POLICY, (0.0, 1.0), (1.0, 1.0), (100.0, uptime))
    assert ledger == Ledger((100.0,), 1)
    assert delay(ledger, POLICY, 0.0) == 1.0


def test_only_time_takes_a_death_out_of_the_window() -> None:
    """Stable each time, and still three deaths within a minute."""
    ledger = dying(POLICY, (0.0, 29.0), (30.0, 30.0), (60.0, 30.0))
    assert ledger.streak == 1
    assert spent(ledger, POLICY, 60.0)
    assert not spent(ledger, POLICY, 60.1)


def test_the_delay_grows_to_its_maximum() -> None:
    ledger, seen = Ledger(), []
    for at in range(5):
        ledger = record_death(ledger, POLICY, 0.0, float(at))
        seen.append(delay(ledger, POLICY, 0.0))
    assert seen == [1.0, 2.0, 4.0, 4.0, 4.0]


def test_the_jitter_moves_the_delay_by_its_share_only() -> None:
    policy = RestartPolicy(delay=10.0, jitter=0.25)
    ledger = dying(policy, (0.0, 0.0))
    assert delay(ledger, policy, -1.0) == 7.5
    assert delay(ledger, policy, 1.0) == 12.5
    assert delay(ledger, policy, 99.0) == 12.5


@pytest.mark.parametrize("factor", [1.0, 2.0, 1e300])
def test_no_streak_overflows_the_delay(factor: float) -> None:
    policy = RestartPolicy(delay=10.0, factor=factor, max_delay=300.0, jitter=0.0)
    wait = delay(Ledger((), 10_000), policy, 0.0)
    assert wait == (10.0 if factor == 1.0 else 300.0)


def test_a_delay_of_zero_stays_zero() -> None:
    assert delay(Ledger((), 7), RestartPolicy(delay=0.0), 1.0) == 0.0


@pytest.mark.parametrize(
    ("on", "clean", "again"),
    [
        ("any_exit", True, True),
        ("any_exit", False, True),
        ("failure", True, False),
        ("failure", False, True),
        ("never", True, False),
        ("never", False, False),
    ],
)
def test_who_is_started_again(on: str, clean: bool, again: bool) -> None:
    assert wants_restart(RestartPolicy(on=on), clean) is again


@given(
    lives=st.lists(st.tuples(st.floats(0.0, 29.9), st.floats(0.0, 1e5)), min_size=3, max_size=30),
    limit=st.integers(1, 3),
)
def test_limit_deaths_without_stable_uptime_always_spend_it(
    lives: list[tuple[float, float]], limit: int
) -> None:
    policy = RestartPolicy(limit=limit, within=60.0, stable=30.0)
    ledger, now = Ledger(), 0.0
    for count, (uptime, rest) in enumerate(lives, start=1):
        now += uptime + rest
        ledger = record_death(ledger, policy, uptime, now)
        assert spent(ledger, policy, now) is (count >= limit)
        assert len(ledger.deaths) <= count
