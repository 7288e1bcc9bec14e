"""What outlives the daemon: written and read back whole, and read with care."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.core.deadline import Deadline
from stepwarden.core.lifecycle import State
from stepwarden.core.memory import Kept, keep, recall
from stepwarden.core.policy import WorkerPolicy
from stepwarden.core.restarts import Ledger
from stepwarden.core.resume import Found, resume
from stepwarden.core.worker import WorkerState

instants = st.floats(0.0, 1e9)
states = st.builds(
    WorkerState,
    name=st.just("w"),
    lifecycle=st.sampled_from(State),
    incarnation=st.integers(0, 10**6),
    wish=st.sampled_from(("", "up", "down")),
    ready_at=st.none() | instants,
    deaths=st.integers(0, 10**6),
    false_alarms=st.integers(0, 10**6),
    ledger=st.builds(Ledger, st.lists(instants, max_size=6).map(tuple), st.integers(0, 99)),
    restart_at=st.builds(Deadline, st.none() | instants),
    restart_wanted=st.booleans(),
    stop_wanted=st.booleans(),
    clean_exit=st.booleans(),
    give_up=st.text(max_size=20),
    cause=st.text(max_size=20),
    sentence=st.text(max_size=20),
    last_exit=st.text(max_size=20),
    last_death=st.text(max_size=20),
)


@given(states)
def test_what_is_kept_comes_back_through_json(state: WorkerState) -> None:
    told = recall(json.loads(json.dumps(keep(state))))
    assert told is not None
    for name in Kept.__dataclass_fields__:
        if name != "restart_at":
            assert getattr(told, name) == getattr(state, name), name
    assert told.restart_at == state.restart_at.at


def test_keys_of_a_newer_version_are_left_out_and_missing_ones_take_their_default() -> None:
    assert recall({"lifecycle": "HEALTHY", "mood": {"good": [1]}}) == Kept(State.HEALTHY)


def test_a_state_that_only_a_newer_version_knows_does_not_lose_the_operators_word() -> None:
    told = recall({"lifecycle": "HIBERNATING", "wish": "down", "deaths": 3})
    assert told == Kept(State.STARTING, wish="down", deaths=3)


@pytest.mark.parametrize(
    "told",
    [
        None,
        [],
        "HEALTHY",
        7,
        {},
        {"lifecycle": None},
        {"lifecycle": ["HEALTHY"]},
        {"lifecycle": "HEALTHY", "deaths": "many"},
        {"lifecycle": "HEALTHY", "deaths": True},
        {"lifecycle": "HEALTHY", "ledger": None},
        {"lifecycle": "HEALTHY", "ledger": [1.0, 2.0, 3]},
        {"lifecycle": "HEALTHY", "ledger": ["12", 2]},
        {"lifecycle": "HEALTHY", "ledger": [[float("nan")], 2]},
        {"lifecycle": "HEALTHY", "ledger": [[10**400], 2]},
        {"lifecycle": "HEALTHY", "ledger": [[1.0], float("inf")]},
    ],
)
def test_what_no_version_wrote_is_no_note(told: Any) -> None:
    assert recall(told) is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), "soon", True, []])
def test_an_instant_that_is_none_is_unknown(value: Any) -> None:
    told = recall({"lifecycle": "RESTARTING", "restart_at": value, "ready_at": value})
    assert told is not None
    assert (told.restart_at, told.ready_at) == (None, None)


def test_negative_counts_are_none() -> None:
    told = recall({"lifecycle": "HEALTHY", "deaths": -4, "ledger": [[], -4]})
    assert told == Kept(State.HEALTHY)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
keys = st.sampled_from(sorted(keep(WorkerState("w")))) | st.text(max_size=8)
bodies = values | st.fixed_dictionaries(
    {"lifecycle": st.sampled_from([*(s.value for s in State), "?"])}
).flatmap(lambda base: st.dictionaries(keys, values).map(lambda more: more | base))


@given(bodies, st.sampled_from(Found), st.booleans())
def test_garbage_never_stops_a_daemon_from_starting(
    told: Any, found: Found, same_boot: bool
) -> None:
    kept = recall(told)
    outcome = resume(WorkerPolicy("w"), 1000.0, kept, found, same_boot=same_boot)
    state = outcome.state
    if state.lifecycle is State.RESTARTING:
        assert state.restart_at.at is not None
        assert 1000.0 <= state.restart_at.at <= 1000.0 + 300.0 * 1.25
    assert len(outcome.actions) <= 1
    assert recall(keep(state)) is not None
