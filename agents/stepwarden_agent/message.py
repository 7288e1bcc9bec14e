"""Makes a Beat from the words of the page and the facts about this process."""

from __future__ import annotations

import importlib.metadata
import itertools
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from stepwarden_proto import page, ring
from stepwarden_proto.channel import MAX_ABOUT_BYTES, MAX_DETAIL_BYTES, MAX_VERSION_BYTES
from stepwarden_proto.phases import PHASE_CODES, effective_phase, phase_name

from stepwarden_agent import facts
from stepwarden_agent.leases import Lease, cut
from stepwarden_agent.settings import Settings

if TYPE_CHECKING:
    from stepwarden_proto.v1 import agent_pb2


_numbers = itertools.count(time.monotonic_ns())
"""For all messages of this process: an agent that follows a closed one may not count anew, nor
may one that follows an exec, which keeps pid and start time."""


def agent_version() -> str:
    """Version of the installed stepwarden; "" where it runs from a source tree."""
    try:
        return cut(importlib.metadata.version("stepwarden"), MAX_VERSION_BYTES)
    except Exception:
        return ""


class About(NamedTuple):
    """What runs in this process, as far as its engine has said; "": it has not."""

    engine: str = ""
    engine_version: str = ""
    model: str = ""
    dtype: str = ""


NOTHING_SAID = About()


class BeatMaker:
    """Fills the messages of one rank. `pb` is the module of the stubs."""

    def __init__(self, settings: Settings, rank: str, page_name: str) -> None:
        self._settings = settings
        self._rank = rank
        self._page_name = page_name
        self._pid = os.getpid()
        self._start_ticks = facts.start_ticks()
        self._boot_id = facts.boot_id()
        self._time_namespace = facts.time_namespace()
        self._version = agent_version()
        self._template: Any = None

    def make(
        self,
        pb: Any,
        reason: int,
        words: memoryview,
        lease: Lease | None,
        detail: str,
        about: About = NOTHING_SAID,
    ) -> agent_pb2.Beat:
        """The next message, as things are now."""
        snapshot = words[: ring.PAGE_WORDS].tolist()
        if self._template is None:
            self._template = self._constant(pb)
        beat: agent_pb2.Beat = pb.Beat()
        beat.CopyFrom(self._template)
        beat.seq = next(_numbers)
        beat.reason = reason  # type: ignore[assignment]  # the stubs want their own enum
        beat.clock.now_ns = time.monotonic_ns()
        if detail:
            beat.detail = cut(detail, MAX_DETAIL_BYTES)
        for name, text in about._asdict().items():
            if text:
                setattr(beat, name, cut(text, MAX_ABOUT_BYTES))
        _fill_steps(beat, snapshot)
        _fill_load(beat)
        _fill_work(beat, snapshot)
        if lease is not None:
            beat.lease.name = lease.name
            beat.lease.begin_ns = lease.begin_ns
            beat.lease.seconds = lease.seconds
        return beat

    def _constant(self, pb: Any) -> agent_pb2.Beat:
        """What every message of this rank and process says."""
        beat: agent_pb2.Beat = pb.Beat(
            worker=self._settings.worker,
            incarnation=self._settings.incarnation,
            rank=self._rank,
            pid=self._pid,
            start_ticks=self._start_ticks,
            page=self._page_name,
            agent_version=self._version,
        )
        beat.clock.boot_id = self._boot_id
        beat.clock.time_namespace = self._time_namespace
        return beat


def _fill_steps(beat: agent_pb2.Beat, words: Sequence[int]) -> None:
    steps = ring.open_steps(words)
    oldest = steps[0] if steps else None
    declared = phase_name(words[page.W_PHASE])
    phase = effective_phase(declared, None if oldest is None else phase_name(oldest.phase))
    beat.phase = PHASE_CODES[phase]  # type: ignore[assignment]  # the stubs want their own enum
    beat.phase_since_ns = words[page.W_PHASE_NS]
    beat.steps_begun = ring.steps_begun(words)
    beat.steps_ended = max(0, beat.steps_begun - words[page.W_OVERFLOWS] - len(steps))
    beat.in_flight = len(steps)
    if oldest is not None:
        beat.oldest.number = oldest.number
        beat.oldest.begin_ns = oldest.begin_ns
        beat.oldest.num_seqs = oldest.num_seqs
        beat.oldest.num_tokens = oldest.num_tokens
        beat.oldest.phase = oldest.phase  # type: ignore[assignment]  # as above


def _fill_load(beat: agent_pb2.Beat) -> None:
    cpu, rss = facts.cpu_seconds(), facts.rss_bytes()
    if cpu is not None:
        beat.cpu_seconds = cpu
    if rss is not None:
        beat.rss_bytes = rss


def _fill_work(beat: agent_pb2.Beat, words: Sequence[int]) -> None:
    if words[page.W_UNFINISHED] < 0:
        return
    beat.work.unfinished = words[page.W_UNFINISHED]
    beat.work.since_ns = words[page.W_UNFINISHED_NS]
    beat.work.loop_turns = words[page.W_LOOP_TURNS]
    beat.work.loop_ns = words[page.W_LOOP_NS]
