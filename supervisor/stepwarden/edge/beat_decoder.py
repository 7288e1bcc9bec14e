"""From a `Beat` message to `BeatFacts`: bounds texts, converts units, knows our own clock."""

from __future__ import annotations

from stepwarden_proto.channel import (
    MAX_ABOUT_BYTES,
    MAX_DETAIL_BYTES,
    MAX_LEASE_NAME_BYTES,
    MAX_VERSION_BYTES,
)
from stepwarden_proto.page import PHASES
from stepwarden_proto.v1 import agent_pb2 as pb

from stepwarden.core.heartbeat import BeatFacts, LeaseFacts, OpenStepFacts, WorkFacts
from stepwarden.edge.host import this_host

MAX_PAGE_NAME_CHARACTERS = 128

_SECONDS_PER_NS = 1e-9
_PHASE_COUNT = len(PHASES)
_BYE = pb.BEAT_REASON_BYE


class BeatDecoder:
    """Decodes beats on the host whose boot id and time namespace it was made with."""

    def __init__(self, boot_id: str | None = None, time_namespace: int | None = None) -> None:
        here = this_host()
        self._boot_id = here.boot if boot_id is None else boot_id
        self._namespace = here.time_namespace if time_namespace is None else time_namespace

    def decode(self, beat: pb.Beat) -> BeatFacts:
        """The facts of one beat; texts are cut to their documented lengths."""
        clock = beat.clock
        return BeatFacts(
            rank=beat.rank,
            seq=beat.seq,
            pid=beat.pid,
            start_ticks=beat.start_ticks,
            now=clock.now_ns * _SECONDS_PER_NS,
            own_clock=bool(self._boot_id)
            and clock.boot_id == self._boot_id
            and clock.time_namespace == self._namespace,
            phase=_phase(beat.phase),
            phase_since=beat.phase_since_ns * _SECONDS_PER_NS,
            oldest=_step(beat.oldest) if beat.HasField("oldest") else None,
            in_flight=beat.in_flight,
            steps_begun=beat.steps_begun,
            steps_ended=beat.steps_ended,
            cpu_seconds=beat.cpu_seconds if beat.HasField("cpu_seconds") else None,
            rss_bytes=beat.rss_bytes if beat.HasField("rss_bytes") else None,
            lease=_lease(beat.lease) if beat.HasField("lease") else None,
            work=_work(beat.work) if beat.HasField("work") else None,
            bye=beat.reason == _BYE,
            page=beat.page[:MAX_PAGE_NAME_CHARACTERS],
            agent_version=_cut(beat.agent_version, MAX_VERSION_BYTES),
            detail=_cut(beat.detail, MAX_DETAIL_BYTES),
            engine=_cut(beat.engine, MAX_ABOUT_BYTES),
            engine_version=_cut(beat.engine_version, MAX_ABOUT_BYTES),
            model=_cut(beat.model, MAX_ABOUT_BYTES),
            dtype=_cut(beat.dtype, MAX_ABOUT_BYTES),
        )


def _phase(code: int) -> str:
    return PHASES[code] if 0 <= code < _PHASE_COUNT else PHASES[0]


def _step(step: pb.OpenStep) -> OpenStepFacts:
    return OpenStepFacts(
        step.number,
        step.begin_ns * _SECONDS_PER_NS,
        step.num_seqs,
        step.num_tokens,
        _phase(step.phase),
    )


def _lease(lease: pb.Lease) -> LeaseFacts:
    name = _cut(lease.name, MAX_LEASE_NAME_BYTES)
    return LeaseFacts(name, lease.begin_ns * _SECONDS_PER_NS, lease.seconds)


def _work(work: pb.Work) -> WorkFacts:
    return WorkFacts(
        work.unfinished,
        work.since_ns * _SECONDS_PER_NS,
        work.loop_turns,
        work.loop_ns * _SECONDS_PER_NS,
    )


def _cut(text: str, limit: int) -> str:
    if len(text) * 4 <= limit:
        return text
    return text.encode()[:limit].decode(errors="ignore")
