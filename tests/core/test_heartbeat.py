from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.core.evidence import ProcessId
from stepwarden.core.heartbeat import (
    LATE,
    OLDER_PROCESS,
    BeatFacts,
    LeaseFacts,
    OpenStepFacts,
    RankBeats,
    WorkFacts,
    accept,
)


def beat(**more: Any) -> BeatFacts:
    basis: dict[str, Any] = {
        "rank": "0",
        "seq": 1,
        "pid": 10,
        "start_ticks": 500,
        "now": 100.0,
        "own_clock": True,
    }
    return BeatFacts(**{**basis, **more})


def run(
    *arrivals: tuple[float, BeatFacts], spawned: float = -math.inf
) -> tuple[RankBeats, list[str]]:
    state: RankBeats | None = None
    reasons = []
    for now, facts in arrivals:
        state, reason = accept(state, facts, now, spawned)
        reasons.append(reason)
    assert state is not None
    return state, reasons


def test_higher_numbers_are_believed_and_move_the_beat() -> None:
    state, reasons = run((100.0, beat(seq=5)), (101.0, beat(seq=6)), (103.0, beat(seq=9)))
    assert reasons == ["", "", ""]
    assert (state.attached_at, state.beat_at, state.sessions) == (100.0, 103.0, 1)


@pytest.mark.parametrize("seq", [0, 4, 5])
def test_late_and_duplicate_beats_change_nothing_but_a_counter(seq: int) -> None:
    first, _ = run((100.0, beat(seq=5)))
    state, reason = accept(first, beat(seq=seq, phase="loading", bye=True), 101.0)
    assert reason == LATE
    assert state == replace(first, refused=1)


def test_a_younger_process_starts_a_session_and_the_older_one_is_refused_from_then_on() -> None:
    young = {"pid": 3, "start_ticks": 900}
    state, reasons = run(
        (100.0, beat(seq=50)),
        (101.0, beat(seq=1, **young)),
        (102.0, beat(seq=51)),
        (103.0, beat(seq=2, **young)),
    )
    assert reasons == ["", "", OLDER_PROCESS, ""]
    assert state.process == ProcessId(3, 900)
    assert (state.sessions, state.attached_at, state.refused) == (2, 101.0, 1)


def test_a_forked_child_and_its_parent_do_not_take_turns() -> None:
    """Same start tick: the order of arrival does not decide who is believed."""
    parent, child = beat(pid=10), beat(pid=11)
    _, child_first = run((1.0, child), (2.0, parent))
    state, parent_first = run((1.0, parent), (2.0, child), (3.0, replace(parent, seq=9)))
    assert child_first == ["", OLDER_PROCESS]
    assert parent_first == ["", "", OLDER_PROCESS]
    assert state.process.pid == 11


def test_after_a_bye_any_process_may_take_the_rank() -> None:
    state, reasons = run((100.0, beat(seq=7, bye=True)), (101.0, beat(pid=9, start_ticks=400)))
    assert reasons == ["", ""]
    assert not state.bye


def test_a_step_on_our_own_clock_is_placed_as_it_is() -> None:
    state, _ = run((100.2, beat(oldest=OpenStepFacts(7, 93.5, 16, 4096, "prefill"))))
    assert state.step is not None
    assert state.step.begin == 93.5
    assert (state.step.num_seqs, state.step.num_tokens, state.step.phase) == (16, 4096, "prefill")
    assert state.clamped == 0


def test_of_a_foreign_clock_only_the_age_is_used() -> None:
    facts = beat(own_clock=False, now=5_000_000.0, oldest=OpenStepFacts(7, 4_999_990.0))
    state, _ = run((100.0, facts))
    assert state.step is not None
    assert state.step.begin == pytest.approx(90.0)


def test_a_foreign_step_is_never_made_younger_by_a_slow_beat() -> None:
    step = OpenStepFacts(7, 990.0)
    state, _ = run(
        (100.0, beat(own_clock=False, seq=1, now=1000.0, oldest=step)),
        (109.0, beat(own_clock=False, seq=2, now=1001.0, oldest=step)),
    )
    assert state.step is not None
    assert state.step.begin == 90.0


def test_a_foreign_step_is_made_older_by_a_quick_beat_after_a_slow_one() -> None:
    step = OpenStepFacts(7, 990.0)
    state, _ = run(
        (108.0, beat(own_clock=False, seq=1, now=1000.0, oldest=step)),
        (109.0, beat(own_clock=False, seq=2, now=1009.0, oldest=step)),
    )
    assert state.step is not None
    assert state.step.begin == 90.0


@pytest.mark.parametrize(
    ("begin", "placed"), [(100.5, 100.0), (1e12, 100.0), (20.0, 50.0), (0.0, 100.0), (-3.0, 100.0)]
)
def test_a_begin_that_cannot_be_is_clamped_and_counted(begin: float, placed: float) -> None:
    state, _ = run((100.0, beat(oldest=OpenStepFacts(1, begin))), spawned=50.0)
    assert state.step is not None
    assert state.step.begin == placed
    assert state.clamped == 1


@pytest.mark.parametrize(
    ("told", "known"), [(0, None), (-1, None), (1, 1), (64, 64), (4294967295, 4294967295)]
)
def test_o_hang_2_a_batch_below_one_is_unknown(told: int, known: int | None) -> None:
    state, _ = run((100.0, beat(oldest=OpenStepFacts(1, 99.0, told, told))))
    assert state.step is not None
    assert (state.step.num_seqs, state.step.num_tokens) == (known, known)


def test_o_hang_2_a_later_beat_with_another_batch_does_not_retime_the_step() -> None:
    state, _ = run(
        (100.0, beat(seq=1, oldest=OpenStepFacts(7, 99.0, 64, 64, "decode"))),
        (101.0, beat(seq=2, oldest=OpenStepFacts(7, 100.9, 1, 1, "prefill"))),
    )
    assert state.step is not None
    assert (state.step.begin, state.step.num_seqs, state.step.phase) == (99.0, 64, "decode")


def test_a_lease_given_back_keeps_its_end() -> None:
    held = LeaseFacts("load", 95.0, 60.0)
    state, _ = run((100.0, beat(seq=1, lease=held)), (103.0, beat(seq=2)), (104.0, beat(seq=3)))
    assert state.lease is not None
    assert (state.lease.begin, state.lease.end) == (95.0, 103.0)


@pytest.mark.parametrize("seconds", [math.nan, -1.0, 0.0])
def test_a_lease_of_no_length_is_none(seconds: float) -> None:
    state, _ = run((100.0, beat(lease=LeaseFacts("x", 99.0, seconds))))
    assert state.lease is None


def test_an_endless_lease_is_finite() -> None:
    state, _ = run((100.0, beat(lease=LeaseFacts("x", 99.0, math.inf))))
    assert state.lease is not None
    assert math.isfinite(state.lease.seconds)


def test_work_is_placed_and_an_unset_queue_age_is_now() -> None:
    state, _ = run((100.0, beat(work=WorkFacts(3, 80.0, 12, 99.5))))
    assert state.work is not None
    assert (state.work.since, state.work.loop_at, state.work.unfinished) == (80.0, 99.5, 3)
    idle, _ = run((100.0, beat(work=WorkFacts(0, 0.0, 12, 99.5))))
    assert idle.work is not None
    assert idle.work.since == 100.0
    none, _ = run((100.0, beat(work=WorkFacts(-1, 0.0, 0, 0.0))))
    assert none.work is None


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -0.5, None])
def test_cpu_seconds_that_are_no_number_are_unknown(seconds: float | None) -> None:
    state, _ = run((100.0, beat(cpu_seconds=seconds)))
    assert state.cpu_seconds is None
    assert state.cpu_sample() is None


def test_cpu_seconds_are_a_sample_at_receipt() -> None:
    state, _ = run((100.0, beat(cpu_seconds=4.5)))
    sample = state.cpu_sample(ProcessId(77, 500))
    assert sample is not None
    assert (sample.at, sample.seconds) == (100.0, {ProcessId(77, 500): 4.5})


numbers = st.floats(allow_nan=True, allow_infinity=True, width=64)
steps = st.none() | st.builds(
    OpenStepFacts,
    number=st.integers(0, 4),
    begin=st.floats(-10.0, 2000.0) | numbers,
    num_seqs=st.integers(-2, 2**33),
    num_tokens=st.integers(-2, 2**33),
)
beats = st.builds(
    BeatFacts,
    rank=st.just("0"),
    seq=st.integers(0, 12),
    pid=st.integers(1, 3),
    start_ticks=st.integers(0, 3),
    now=st.floats(0.0, 1e9),
    own_clock=st.booleans(),
    phase=st.sampled_from(["decode", "idle", "loading"]),
    phase_since=st.floats(0.0, 2000.0),
    oldest=steps,
    lease=st.none() | st.builds(LeaseFacts, st.just("x"), numbers, numbers),
    work=st.none() | st.builds(WorkFacts, st.integers(-1, 5), numbers, st.just(1), numbers),
    cpu_seconds=st.none() | numbers,
    bye=st.booleans(),
)
arrivals = st.lists(st.tuples(st.floats(0.0, 5.0), beats), min_size=1, max_size=40)


@given(arrivals, st.floats(0.0, 100.0))
def test_any_interleaving_keeps_the_rules(
    sequence: list[tuple[float, BeatFacts]], spawned: float
) -> None:
    """Whatever arrives: numbers of a session only rise, and no instant lies outside its life."""
    now = 100.0
    state: RankBeats | None = None
    for pause, facts in sequence:
        now += pause
        before = state
        state, reason = accept(state, facts, now, spawned)
        if before is None:
            assert reason == ""
            continue
        if reason:
            assert state == replace(before, refused=before.refused + 1)
            continue
        assert state.refused == before.refused
        assert state.clamped >= before.clamped
        if state.sessions == before.sessions:
            assert state.process == before.process
            assert state.last.seq > before.last.seq
            assert state.attached_at == before.attached_at
            if state.step and before.step and state.step.number == before.step.number:
                assert state.step.begin <= before.step.begin
        for instant in _instants(state):
            assert spawned <= instant <= now


def _instants(state: RankBeats) -> list[float]:
    found = [state.attached_at, state.beat_at, state.phase_since]
    if state.step:
        found.append(state.step.begin)
    if state.lease:
        found.append(state.lease.begin)
    if state.work:
        found += [state.work.since, state.work.loop_at]
    return found
