"""What the daemon shows of a rank: counted, of the page where there is one, else of the beats."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from stepwarden.config import load
from stepwarden.core.heartbeat import BeatFacts, OpenStepFacts, WorkFacts
from stepwarden.core.lifecycle import State
from stepwarden.core.worker import WorkerState
from stepwarden.daemon.backend import Backend
from stepwarden.daemon.gather import read_pages, take_beat
from stepwarden.daemon.life import Life
from stepwarden.daemon.unit import Unit
from stepwarden.edge.page_reader import PageReader
from stepwarden.edge.views import RankView
from stepwarden_agent.page_file import create_page
from stepwarden_agent.progress import Ring
from stepwarden_proto import page
from support.clocks import FakeClock

NOW = 500.0
FACTS = BeatFacts(
    "0",
    seq=3,
    pid=70,
    start_ticks=5,
    now=NOW,
    own_clock=True,
    oldest=OpenStepFacts(9, 450.0, 4, 4, "decode"),
    in_flight=2,
    steps_begun=10,
    steps_ended=8,
    work=WorkFacts(6, 480.0, 77, 499.0),
    agent_version="0.1.0",
    detail="warm",
)


@pytest.fixture
def unit(tmp_path: Path) -> Unit:
    file = tmp_path / "f.yaml"
    file.write_text("workers:\n  w: {command: [a], backend: cpu}\n")
    pages = tmp_path / "pages"
    pages.mkdir()
    life = Life("w", 1, "w.1.abc", pages, PageReader(pages), spawned_at=100.0)
    state = WorkerState("w", State.HEALTHY, incarnation=1, spawned_at=100.0, ready_at=101.0)
    return Unit(load(file).workers["w"], state, life)


class Looks:
    """Stands for the loop that brings a worker up to date before it is shown."""

    def look(self, unit: Unit, now: float) -> None:
        assert unit.life is not None
        read_pages(unit.life, lambda _: True, now)


def shown(unit: Unit, now: float = NOW) -> RankView:
    backend = Backend(
        {"w": unit}, cast(Any, Looks()), cast(Any, None), cast(Any, None), FakeClock(now)
    )
    view = backend.worker("w")
    assert view is not None
    (rank,) = view.ranks
    return rank


def test_what_beats_alone_tell_is_shown_and_what_was_not_believed_is_counted(unit: Unit) -> None:
    assert unit.life is not None
    take_beat(unit.life, FACTS, NOW)
    take_beat(unit.life, FACTS, NOW)  # a duplicate
    take_beat(unit.life, replace(FACTS, seq=1), NOW)  # out of order
    rank = shown(unit, NOW + 2.0)
    assert (rank.in_flight, rank.step, rank.steps_ended) == (2, 9, 8)
    assert (rank.requests_unfinished, rank.loop_turns, rank.loop_age) == (6, 77, 3.0)
    assert (rank.beats_refused, rank.stamps_clamped, rank.steps_unrecorded) == (2, 0, 0)
    assert (rank.agent_version, rank.detail) == ("0.1.0", "warm")
    ahead = OpenStepFacts(11, NOW + 900.0)
    before = replace(FACTS, seq=5, oldest=OpenStepFacts(12, 1.0))
    take_beat(unit.life, replace(FACTS, seq=4, oldest=ahead), NOW)
    take_beat(unit.life, before, NOW)
    assert shown(unit).stamps_clamped == 2


def test_what_the_page_tells_is_shown(unit: Unit) -> None:
    assert unit.life is not None
    made = create_page(str(unit.life.page_dir), "0", "idle")
    ring = Ring(lambda: None)
    ring.attach(made.words)
    unit.life.pages.close()
    unit.life.pages = PageReader(unit.life.page_dir)
    for _ in range(page.RING_SLOTS + 3):
        ring.begin(1, 1, "decode")
    rank = shown(unit)
    assert (rank.in_flight, rank.steps_unrecorded, rank.steps_ended) == (16, 3, 0)
    assert (rank.requests_unfinished, rank.loop_turns, rank.loop_age) == (None, None, None)
    assert (rank.agent_version, rank.beats_refused) == ("", 0)
    made.words[page.W_UNFINISHED] = 4
    made.words[page.W_OVERFLOWS] = made.words[page.W_LOOP_TURNS] = -5  # nonsense
    rank = shown(unit)
    assert (rank.requests_unfinished, rank.loop_turns, rank.steps_unrecorded) == (4, 0, 0)
    assert rank.loop_age is None
