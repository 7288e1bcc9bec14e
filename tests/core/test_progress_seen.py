from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from stepwarden.core.progress_seen import ProgressSeen, progressed

Look = tuple[float, float | None, float | None]


def after(*looks: Look) -> ProgressSeen:
    seen = None
    for now, counter, work in looks:
        seen = progressed(seen, counter, work, now)
    assert seen is not None
    return seen


def test_a_counter_that_stands_with_work_present_keeps_its_instants() -> None:
    seen = after((10.0, 5.0, 0.0), (15.0, 5.0, 2.0), (20.0, 7.0, 2.0), (25.0, 7.0, 1.0))
    assert seen == ProgressSeen(7.0, 1.0, moved_at=20.0, work_since=15.0)


def test_idle_is_never_a_stand() -> None:
    idle = after((10.0, 5.0, 0.0), (999.0, 5.0, 0.0))
    assert idle.work_since is None
    assert progressed(idle, 5.0, 1.0, 1000.0).work_since == 1000.0


def test_a_counter_that_began_anew_has_moved() -> None:
    assert after((10.0, 500.0, 1.0), (15.0, 3.0, 1.0)) == ProgressSeen(3.0, 1.0, 15.0, 10.0)


def test_what_could_not_be_learnt_changes_nothing() -> None:
    before = after((10.0, 5.0, 1.0))
    assert progressed(before, None, None, 90.0) == before
    assert progressed(before, None, 0.0, 90.0) == ProgressSeen(5.0, 0.0, 10.0, None)


VALUES = st.none() | st.integers(0, 3).map(float)


@given(st.lists(st.tuples(VALUES, VALUES)))
def test_instants_never_go_back_nor_lie_ahead(
    looks: list[tuple[float | None, float | None]],
) -> None:
    seen = None
    for number, (counter, work) in enumerate(looks):
        last, seen = seen, progressed(seen, counter, work, float(number))
        assert (0.0 if last is None else last.moved_at) <= seen.moved_at <= number
        assert seen.work_since is None or seen.work_since <= number
        assert (seen.work_since is not None) == bool(seen.work)
        if last is not None and counter is not None and counter == last.counter:
            assert seen.moved_at == last.moved_at
