"""From what agents say and the kernel shows to evidence."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from stepwarden.core.evidence import ProcessId
from stepwarden.core.heartbeat import BeatFacts
from stepwarden.daemon.gather import evidence_of, read_pages, take_beat
from stepwarden.daemon.life import Life
from stepwarden.edge.page_reader import PageReader
from stepwarden.edge.process_probe import identify
from support.agent_process import agent_environment, engine, line_from

HOLDER = """
import sys
from stepwarden_agent import Agent
agent = Agent.from_env()
print("ready", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    pages = PageReader(tmp_path)
    yield Life("w", 1, "w.1.abc", tmp_path, pages, spawned_at=100.0)
    pages.close()


def beat(seq: int, begun: int = 0, ended: int = 0) -> BeatFacts:
    return BeatFacts("0", seq, 70, 5, 1.0, False, steps_begun=begun, steps_ended=ended)


def test_a_rank_that_cannot_be_watched_now_is_not_lost(life: Life, tmp_path: Path) -> None:
    """Out of descriptors nobody is told apart from the dead; it is tried again."""
    with engine(HOLDER, agent_environment(pages=tmp_path)) as process:
        assert line_from(process) == "ready"

        def no_descriptor_left(_: ProcessId) -> bool:
            raise OSError(errno.EMFILE, "Too many open files")

        read_pages(life, no_descriptor_left, time.monotonic())
        rank = evidence_of(life).ranks["0"]
        assert (rank.process, rank.lost) == (None, False)
        read_pages(life, lambda _: True, time.monotonic())
        rank = evidence_of(life).ranks["0"]
        assert (rank.process, rank.lost) == (identify(process.pid), False)


def test_steps_told_by_beats_alone_restart_the_wait_of_the_scheduler(life: Life) -> None:
    """Without a readable page the queue's rise from 0 may lie hours back in a busy engine."""
    take_beat(life, beat(1), 110.0)
    assert evidence_of(life).ranks["0"].stepped_at is None
    for now, begun, ended, stepped in (
        (111.0, 1, 0, 111.0),
        (112.0, 1, 0, 111.0),
        (113.0, 1, 1, 113.0),
        (114.0, 9, 9, 114.0),
        (115.0, 9, 9, 114.0),
    ):
        take_beat(life, beat(int(now), begun, ended), now)
        assert evidence_of(life).ranks["0"].stepped_at == stepped


LEASER = """
import sys
from stepwarden_agent import Agent
agent = Agent.from_env()
lease = agent.lease("weight swap", 60.0)
print("held", flush=True)
sys.stdin.readline()
lease.release()
print("over", flush=True)
sys.stdin.readline()
"""


def test_a_lease_that_the_page_shows_no_more_keeps_its_end(life: Life, tmp_path: Path) -> None:
    """Before the beat tells of the end, what the lease has pushed out must not jump back."""
    with engine(LEASER, agent_environment(pages=tmp_path)) as process:
        assert process.stdin is not None
        assert line_from(process) == "held"
        read_pages(life, lambda _: True, time.monotonic())
        held = evidence_of(life).ranks["0"].lease
        assert held is not None
        assert held.end is None
        process.stdin.write("\n")
        process.stdin.flush()
        assert line_from(process) == "over"
        now = time.monotonic()
        read_pages(life, lambda _: True, now)
        read_pages(life, lambda _: True, now + 1.0)
        over = evidence_of(life).ranks["0"].lease
        assert over is not None
        assert (over.begin, over.end) == (held.begin, now)
