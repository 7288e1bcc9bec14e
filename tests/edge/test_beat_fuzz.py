"""Whatever an agent sends: it is no Beat, or it becomes facts that the core can take."""

from __future__ import annotations

import math
from contextlib import suppress

from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from stepwarden.core.heartbeat import RankBeats, accept
from stepwarden.edge.beat_decoder import BeatDecoder
from stepwarden_proto.v1 import agent_pb2 as pb

int64 = st.integers(-(2**63), 2**63 - 1)
uint64 = st.integers(0, 2**64 - 1)
doubles = st.floats(allow_nan=True, allow_infinity=True)
whole = st.builds(
    pb.Beat,
    rank=st.just("0"),
    seq=uint64,
    pid=int64,
    start_ticks=uint64,
    clock=st.builds(pb.ClockStamp, now_ns=int64, boot_id=st.sampled_from(["b", "x", ""])),
    phase=st.integers(-(2**31), 2**31 - 1),
    phase_since_ns=int64,
    steps_begun=uint64,
    oldest=st.builds(pb.OpenStep, number=uint64, begin_ns=int64, num_seqs=int64, num_tokens=int64),
    cpu_seconds=doubles,
    lease=st.builds(pb.Lease, name=st.text(max_size=300), begin_ns=int64, seconds=doubles),
    work=st.builds(pb.Work, unfinished=int64, since_ns=int64, loop_ns=int64),
    detail=st.text(max_size=200),
)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A Beat, possibly with bytes changed, cut off, or all made up."""
    raw = bytearray(draw(whole).SerializeToString())
    for position, value in draw(
        st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=4)
    ):
        raw[position % len(raw)] = value
    return draw(st.sampled_from([bytes(raw), bytes(raw[: len(raw) // 2])]) | st.binary())


@settings(max_examples=100, deadline=None)
@given(st.lists(messages(), min_size=1, max_size=5))
def test_any_bytes_are_refused_or_become_facts_within_bounds(arrivals: list[bytes]) -> None:
    decoder = BeatDecoder("b", 0)
    state: RankBeats | None = None
    now = 1000.0
    for raw in arrivals:
        now += 1.0
        with suppress(DecodeError):
            facts = decoder.decode(pb.Beat.FromString(raw))
            state, _ = accept(state, facts, now, spawned=900.0)
    if state is None:
        return
    assert state.cpu_seconds is None or math.isfinite(state.cpu_seconds)
    if state.step is not None:
        assert 900.0 <= state.step.begin <= now
    if state.lease is not None:
        assert 900.0 <= state.lease.begin <= now
        assert 0.0 < state.lease.seconds < math.inf
        assert len(state.lease.name.encode()) <= 64
    if state.work is not None:
        assert 900.0 <= state.work.since <= now
