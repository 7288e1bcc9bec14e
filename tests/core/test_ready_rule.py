"""When the crew counts as ready."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from stepwarden.core.lifecycle import State
from stepwarden.core.ready_rule import ReadyRule, Standing

NAMES = "abcde"
CREWS = st.lists(
    st.builds(Standing, st.sampled_from(NAMES), st.sampled_from(list(State)), st.booleans()),
    unique_by=lambda one: one.name,
)


def healthy(crew: list[Standing]) -> set[str]:
    return {one.name for one in crew if one.state is State.HEALTHY}


@given(CREWS)
def test_all_asks_for_each_that_starts_by_itself(crew: list[Standing]) -> None:
    wanted = {one.name for one in crew if one.autostart}
    assert ReadyRule().holds(crew) is (wanted <= healthy(crew))


@given(CREWS, st.integers(1, 5))
def test_at_least_counts_whoever_is_healthy(crew: list[Standing], number: int) -> None:
    assert ReadyRule(number).holds(crew) is (len(healthy(crew)) >= number)


@given(CREWS, st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
def test_named_workers_are_all_that_counts(crew: list[Standing], names: list[str]) -> None:
    assert ReadyRule(workers=tuple(names)).holds(crew) is (set(names) <= healthy(crew))


@given(CREWS, st.integers(1, 5), st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
def test_so_many_of_the_named(crew: list[Standing], number: int, names: list[str]) -> None:
    counted = healthy(crew) & set(names)
    assert ReadyRule(number, tuple(names)).holds(crew) is (len(counted) >= number)


def test_a_late_or_unknown_worker_is_not_ready() -> None:
    for state in State:
        rule = ReadyRule(workers=("a",))
        assert rule.holds([Standing("a", state)]) is (state is State.HEALTHY)
    assert not ReadyRule(workers=("a",)).holds([])
    assert ReadyRule().holds([])
