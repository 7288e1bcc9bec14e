"""The governor: a bucket of deaths, a freeze when most turn suspect at once, nobody starves."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.core.governor import (
    Governor,
    GovernorPolicy,
    Held,
    Seen,
    new_governor,
)

POLICY = GovernorPolicy(deaths=2, within=20.0, freeze_max=100.0)
WINDOW = 30.0


def seen(since: dict[str, float | None], window: float = WINDOW) -> list[Seen]:
    """Workers by name; one with a "/" is of the group before it."""
    return [
        Seen(name, f"group {name.split('/')[0]}" if "/" in name else name, at, window)
        for name, at in since.items()
    ]


def governor(policy: GovernorPolicy = POLICY, now: float = 0.0) -> Governor:
    return new_governor(policy, now)


def two_of_many(now: float) -> Governor:
    """Two of six are suspect, which is no majority."""
    names: dict[str, float | None] = dict.fromkeys("abcdef")
    return governor().looked(seen({**names, "a": now, "b": now, "c": now}), now)


def test_a_single_worker_dies_as_ever() -> None:
    asked, held = governor().looked(seen({"a": 0.0}), 30.0).asked("a", False, 30.0)
    assert held is None
    assert asked.tokens == 1.0


def test_beyond_the_bucket_deaths_wait_for_what_time_earns() -> None:
    state = two_of_many(0.0)
    for name in "ab":
        state, held = state.asked(name, False, 0.0)
        assert held is None
    state, held = state.asked("c", False, 0.0)
    assert held is Held.BUCKET
    assert state.wait("c", 0.0) == pytest.approx(10.0)
    state, held = state.asked("c", False, 9.9)
    assert held is Held.BUCKET
    state, held = state.asked("c", False, 10.1)
    assert held is None
    assert state.waiting == ()


def test_who_was_condemned_first_gets_the_first_token() -> None:
    state = two_of_many(0.0)
    for name in "abcd":
        state, _ = state.asked(name, False, 0.0)
    assert [one.worker for one in state.waiting] == ["c", "d"]
    state, held = state.asked("d", False, 11.0)  # asks first, but c was condemned before it
    assert held is Held.BUCKET
    state, held = state.asked("c", False, 15.0)
    assert held is None
    _, held = state.asked("d", False, 21.0)
    assert held is None


def test_the_token_of_one_that_recovered_goes_back() -> None:
    state = two_of_many(0.0)
    for name in "abc":
        state, _ = state.asked(name, False, 0.0)
    state = state.looked(seen({"c": 0.0, "x": None}), 11.0)
    assert [one.paid for one in state.waiting] == [True]
    before = state.tokens
    state = state.looked(seen({"c": None, "x": None}), 11.0)
    assert state.waiting == ()
    assert state.tokens == pytest.approx(before + 1.0)


@pytest.mark.parametrize(
    ("since", "frozen"),
    [
        ({"a": 0.0, "b": 5.0, "c": 9.0}, True),
        ({"a": 0.0, "b": 5.0, "c": None}, True),
        ({"a": 0.0, "b": None, "c": None}, False),
        ({"a": 0.0, "b": 5.0, "c": None, "d": None}, False),  # half is not more than half
        ({"a": 0.0, "b": 5.0}, False),  # of two, no majority says anything
        ({"g/1": 0.0, "g/2": 1.0, "g/3": 2.0, "g/4": 3.0}, False),  # one group is one
        ({"g/1": 0.0, "g/2": 1.0, "b": 2.0, "c": None}, True),
        ({"a": -31.0, "b": 5.0, "c": None}, False),  # not within one window
    ],
)
def test_a_majority_within_one_window_freezes(since: dict[str, float | None], frozen: bool) -> None:
    state = governor().looked(seen(since), 10.0)
    assert (state.frozen is not None) is frozen


def frozen_at(now: float) -> tuple[Governor, list[Seen]]:
    there = seen({"a": now, "b": now, "c": now, "d": None})
    return governor(now=now).looked(there, now), there


@pytest.mark.parametrize("capped", [False, True])
def test_a_freeze_holds_up_hard_caps_too_and_ends_in_time(capped: bool) -> None:
    state, there = frozen_at(0.0)
    for now in (30.0, 60.0, 99.0):
        state, held = state.looked(there, now).asked("a", capped, now)
        assert held is Held.FREEZE
    state = state.looked(there, 100.0)
    assert state.frozen is None
    _, held = state.asked("a", capped, 100.0)
    assert held is None


def test_a_freeze_ends_when_most_have_recovered() -> None:
    state, _ = frozen_at(0.0)
    state = state.looked(seen({"a": 0.0, "b": 0.0, "c": None, "d": None}), 20.0)
    assert state.frozen is None
    assert state.rests_until == 120.0


def test_at_most_half_of_all_time_is_frozen() -> None:
    state, there = frozen_at(0.0)
    state = state.looked(there, 100.0)
    again = seen({"a": 150.0, "b": 150.0, "c": 150.0})
    assert state.looked(again, 150.0).frozen is None
    again = seen({"a": 200.0, "b": 200.0, "c": 200.0})
    assert state.looked(again, 200.0).frozen is not None


def test_who_is_killed_counts_on_as_suspect_until_its_window_is_over() -> None:
    """With windows of different lengths the first is dead before the last turns suspect."""
    first = seen({"a": 0.0, "b": None, "c": None})
    state, held = governor().looked(first, 10.0).asked("a", False, 10.0)
    assert held is None
    there = seen({"a": None, "b": 12.0, "c": None})
    assert state.looked(there, 12.0).frozen is not None
    assert state.looked(there, 31.0).frozen is None


def test_past_its_hard_cap_a_death_waits_no_longer_than_freeze_max_in_all() -> None:
    slow = GovernorPolicy(deaths=1, within=10_000.0, freeze_max=100.0)
    names: dict[str, float | None] = dict.fromkeys("abcdef")
    there = seen({**names, "a": 0.0, "b": 0.0})
    state, _ = governor(slow).looked(there, 0.0).asked("a", True, 0.0)
    state, held = state.asked("b", True, 0.0)
    assert held is Held.BUCKET
    state, held = state.asked("b", True, 99.0)
    assert held is Held.BUCKET
    assert state.asked("b", False, 100.0)[1] is Held.BUCKET
    assert state.asked("b", True, 100.0)[1] is None


def test_without_freeze_max_nothing_freezes() -> None:
    never = replace(POLICY, freeze_max=0.0)
    state = governor(never).looked(seen({"a": 0.0, "b": 0.0, "c": 0.0}), 0.0)
    assert state.frozen is None


def test_another_configuration_takes_over_what_was_spent() -> None:
    state, there = frozen_at(0.0)
    state = state.reconfigured(GovernorPolicy(10, 60.0, 5.0), 0.0)
    assert state.tokens == 10.0
    assert state.looked(there, 5.0).frozen is None
    spent, _ = state.looked(there, 5.0).asked("a", False, 5.0)
    assert spent.reconfigured(POLICY, 5.0).tokens == pytest.approx(1.0)


@given(
    deaths=st.integers(1, 5),
    within=st.floats(1.0, 60.0),
    asks=st.lists(st.tuples(st.sampled_from("abcdefgh"), st.floats(0.0, 20.0)), max_size=60),
)
def test_no_more_die_than_the_bucket_gives(
    deaths: int, within: float, asks: list[tuple[str, float]]
) -> None:
    state, now, died = new_governor(GovernorPolicy(deaths, within, 0.0), 0.0), 0.0, 0
    there = seen(dict.fromkeys("abcdefgh", 0.0))
    for name, later in asks:
        now += later
        state, held = state.looked(there, now).asked(name, False, now)
        died += held is None
        assert state.tokens >= 0.0
        assert died <= deaths + now * deaths / within + 1e-6


@given(count=st.integers(3, 12), capped=st.booleans(), window=st.floats(1.0, 30.0))
def test_everybody_who_stays_condemned_dies_within_a_stated_time(
    count: int, capped: bool, window: float
) -> None:
    """Frozen at first, then by the bucket; each asks at the end of its windows."""
    names = [f"w{index}" for index in range(count)]
    state, now = new_governor(POLICY, 0.0), 0.0
    left = list(names)
    order = []
    while left:
        state = state.looked(seen(dict.fromkeys(left, 0.0), window), now)
        for name in list(left):
            state, held = state.asked(name, capped, now)
            if held is None:
                left.remove(name)
                order.append(name)
        now += window
        most = POLICY.freeze_max + count * POLICY.within / POLICY.deaths + 3 * window
        assert now <= most + window * count
    assert order == names
