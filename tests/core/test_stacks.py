"""Two looks at stacks: what they come to, and what is made of any dump."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.core.stacks import (
    MAX_FRAMES,
    MAX_THREADS,
    NOTHING_SEEN,
    Frame,
    Place,
    Stacks,
    ThreadStack,
    compare,
    parse_dump,
    together,
)

PID = 40


def stack(*calls: str, tid: int = PID, name: str = "MainThread", active: bool = False) -> Stacks:
    """One thread; each call is FUNCTION:LINE, the innermost first."""
    frames = tuple(Frame(c.split(":")[0], "/e/engine.py", int(c.split(":")[1])) for c in calls)
    return (ThreadStack(tid, name, tid == PID, active, frames),)


def test_the_same_place_in_both_is_wedged_and_says_where() -> None:
    diff = compare(stack("acquire:5", "step:9"), stack("acquire:5", "step:9"), 30.0)
    assert diff.place is Place.WEDGED
    assert (
        diff.sentence == "its main thread stands at acquire (engine.py:5) in two looks 30 s apart"
    )


def test_one_that_runs_at_the_same_place_is_wedged_and_said_to_run() -> None:
    both = stack("matmul:5", active=True)
    diff = compare(both, both, 30.0)
    assert diff.place is Place.WEDGED
    assert "running both times" in diff.sentence


def test_another_line_is_moving_and_the_innermost_call_that_it_stayed_in_is_named() -> None:
    before, after = stack("dot:5", "layer:20", "step:9"), stack("norm:7", "layer:21", "step:9")
    diff = compare(before, after, 30.0)
    assert diff.place is Place.MOVING
    assert "moves within layer (engine.py:21)" in diff.sentence


def test_a_main_thread_that_stands_while_another_moves_is_partly() -> None:
    main = stack("join:3")
    before = main + stack("a:1", tid=41, name="pool")
    after = main + stack("b:1", tid=41, name="pool")
    diff = compare(before, after, 1.0)
    assert diff.place is Place.PARTLY
    assert diff.sentence.endswith("while thread pool moves")


def test_the_agents_own_threads_count_for_nothing() -> None:
    main = stack("join:3")
    before = main + stack("poll:1", tid=41, name="stepwarden-beats")
    after = main + stack("send:1", tid=41, name="stepwarden-beats")
    assert compare(before, after, 1.0).place is Place.WEDGED


def test_threads_that_only_one_look_shows_are_not_compared() -> None:
    assert compare((), stack("a:1"), 1.0).place is Place.UNKNOWN
    assert compare(stack("a:1"), stack("a:1", tid=99), 1.0).place is Place.UNKNOWN


def test_a_main_thread_without_a_place_is_unknown() -> None:
    assert compare(stack(), stack(), 1.0).place is Place.UNKNOWN


def test_of_several_ranks_one_that_moves_counts_most_and_unknown_least() -> None:
    wedged = compare(stack("a:1"), stack("a:1"), 1.0)
    moving = compare(stack("a:1"), stack("b:1"), 1.0)
    assert together([wedged, moving, NOTHING_SEEN]) is moving
    assert together([NOTHING_SEEN, wedged]) is wedged
    assert together([]) is NOTHING_SEEN


def test_a_dump_of_py_spy_is_read() -> None:
    frame = {"name": "step", "filename": "/e/m.py", "line": 7, "locals": None}
    dump = [{"os_thread_id": PID, "thread_name": "MainThread", "active": True, "frames": [frame]}]
    (thread,) = parse_dump(dump, PID)
    assert (thread.main, thread.active, thread.name) == (True, True, "MainThread")
    assert str(thread.top) == "step (m.py:7)"


def test_a_dump_is_bounded() -> None:
    frame = {"name": "x" * 10_000, "filename": "f", "line": 1}
    dump = [{"os_thread_id": n, "frames": [frame] * 1000} for n in range(1000)]
    threads = parse_dump(dump, PID)
    assert len(threads) == MAX_THREADS
    assert all(len(thread.frames) == MAX_FRAMES for thread in threads)
    assert len(threads[0].frames[0].function) < 1000


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(["frames", "name", "line", "os_thread_id", "thread_name", "filename"]),
            inner,
        )
    ),
)


@given(JSON)
def test_any_dump_is_read_or_refused(dump: object) -> None:
    try:
        threads = parse_dump(dump, PID)
    except ValueError:
        return
    assert compare(threads, threads, 1.0).place in (Place.WEDGED, Place.UNKNOWN)


@pytest.mark.parametrize("dump", [None, {}, "text", [1], [{"frames": None}], [{"frames": [3]}]])
def test_what_is_no_dump_is_refused(dump: object) -> None:
    with pytest.raises(ValueError, match=r"no|none"):
        parse_dump(dump, PID)
