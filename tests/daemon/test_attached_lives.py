"""Whom an attached life takes in, and what is not taken in for a token alone."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from stepwarden.core.evidence import Exit, ProcessId
from stepwarden.core.heartbeat import BeatFacts
from stepwarden.daemon import attached, gather
from stepwarden.daemon.families import NOBODY
from stepwarden.daemon.life import Life
from stepwarden.daemon.runners import ATTACH, SPAWN
from stepwarden.edge.family import Family
from stepwarden.edge.page_reader import PageReader
from stepwarden.edge.process_probe import identify
from stepwarden_proto import page
from support.agent_process import engine, line_from

WRITER = """
import os, sys
from stepwarden_agent import Agent
agent = Agent.from_env()
print(os.getpid(), flush=True)
sys.stdin.readline()
"""
GONE = ProcessId(2**22 - 1, 1)
"""A process that ended long ago."""


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    pages = tmp_path / page.ATTACHED_PAGES
    pages.mkdir(mode=0o700)
    made = Life("w", 1, "w.1.aa", pages, PageReader(pages, expect_uid=os.geteuid()))
    made.runner = ATTACH
    made.family = Family(NOBODY, made.name)
    yield made
    made.pages.close()


def beat(process: ProcessId, seq: int = 1) -> BeatFacts:
    return BeatFacts("0", seq, process.pid, process.start_ticks, time.monotonic(), own_clock=True)


def read(life: Life) -> None:
    gather.read_pages(life, lambda _: True, time.monotonic())


def environment(life: Life) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("STEPWARDEN_")}
    return kept | {page.ENV_ATTACH: str(life.page_dir.parent)}


def test_who_holds_the_lock_belongs_and_a_page_that_was_left_behind_does_not(life: Life) -> None:
    with engine(WRITER, environment(life)) as process:
        pid = int(line_from(process))
        read(life)
        assert life.ranks["0"].process == identify(pid)
        assert life.family is not None
        assert identify(pid) in life.family.known
    later = Life("w", 2, "w.2.bb", life.page_dir, PageReader(life.page_dir, os.geteuid()))
    later.runner, later.family = ATTACH, Family(NOBODY, "w.2.bb")
    read(later)
    assert later.ranks == {}
    later.pages.close()


def test_nothing_is_read_before_the_invitation_is_left(life: Life) -> None:
    life.family = None
    with engine(WRITER, environment(life)) as process:
        line_from(process)
        read(life)
    assert life.ranks == {}


@pytest.mark.parametrize("over", ["main has ended", "its exit is known"])
def test_a_successor_is_not_taken_into_the_life_that_has_ended(life: Life, over: str) -> None:
    life.main, life.exit = (GONE, None) if over == "main has ended" else (None, Exit())
    with engine(WRITER, environment(life)) as process:
        pid = int(line_from(process))
        read(life)
        assert life.ranks == {}
        successor = identify(pid)
        assert successor is not None
        assert not gather.take_beat(life, beat(successor), time.monotonic())
        assert life.ranks == {}


def test_one_that_hung_out_of_reach_is_known_by_its_own_pid_and_not_let_in_again(
    life: Life,
) -> None:
    hung = ProcessId(7, 70)
    assert gather.take_beat(life, beat(hung), time.monotonic())
    assert attached.out_of_reach(life) == {hung}
    life.ranks.clear()
    life.dismissed = frozenset({hung})
    assert not gather.take_beat(life, beat(hung, 2), time.monotonic())
    assert gather.take_beat(life, beat(ProcessId(7, 71), 3), time.monotonic())


def test_a_page_of_another_user_refuses_its_rank_and_is_told_once(life: Life) -> None:
    with engine(WRITER, environment(life)) as process:
        pid = int(line_from(process))
        life.pages.expect(os.geteuid() + 1)
        speaker = identify(pid)
        assert speaker is not None
        assert not gather.take_beat(life, beat(speaker), time.monotonic())
        read(life)
        told = gather.arrivals(life)
        assert [(event.kind.value, event.rank) for event in told] == [("refused", "0")]
        assert f"belongs to user {os.geteuid()}" in told[0].sentence
        assert gather.arrivals(life) == []


def test_a_life_of_our_own_takes_whatever_lies_in_its_directory(life: Life) -> None:
    life.runner, life.main = SPAWN, GONE
    with engine(WRITER, environment(life)) as process:
        line_from(process)
        read(life)
        assert set(life.ranks) == {"0"}
        assert attached.out_of_reach(life) == frozenset()
