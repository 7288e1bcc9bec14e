"""From what agents say and the kernel shows to evidence."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from stepwarden.core.evidence import Lease, ProcessId
from stepwarden.core.heartbeat import BeatFacts, LeaseFacts
from stepwarden.daemon.gather import UNSEEN_SECONDS, evidence_of, read_pages, take_beat
from stepwarden.daemon.leases import KEPT_LEASES
from stepwarden.daemon.life import Life
from stepwarden.edge.page_reader import PageReader
from stepwarden.edge.process_probe import identify
from support.agent_process import agent_environment, engine, line_from
from support.waiting import wait_for

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
        assert life.watched == {rank.process}


STEPPER = """
import sys
from stepwarden_agent import Agent
agent = Agent.from_env()
agent.begin(4, 4)
print("ready", flush=True)
sys.stdin.readline()
"""


def test_a_rank_that_ended_while_no_daemon_was_there_is_lost(life: Life, tmp_path: Path) -> None:
    """Its page shows an open step for ever: that is no sign of life, and it is told of soon."""
    with engine(STEPPER, agent_environment(pages=tmp_path)) as process:
        assert line_from(process) == "ready"
        process.kill()
        process.wait(10)
        life.adopted = True
        now = time.monotonic()
        read_pages(life, lambda _: True, now)
        rank = evidence_of(life).ranks["0"]
        assert (rank.steps, rank.lost) == ((), False)
        read_pages(life, lambda _: True, now + UNSEEN_SECONDS)
        assert evidence_of(life).ranks["0"].lost


def test_a_rank_that_lives_is_not_taken_for_one_that_ended(life: Life, tmp_path: Path) -> None:
    with engine(STEPPER, agent_environment(pages=tmp_path)) as process:
        assert line_from(process) == "ready"
        life.adopted = True
        now = time.monotonic()
        for later in (0.0, UNSEEN_SECONDS, 2 * UNSEEN_SECONDS):
            read_pages(life, lambda _: True, now + later)
            rank = evidence_of(life).ranks["0"]
            assert (len(rank.steps), rank.lost) == (1, False)


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
        rank = evidence_of(life).ranks["0"]
        assert rank.lease is None
        (over,) = rank.leases
        assert (over.begin, over.end) == (held.begin, now)


SWAPPER = """
import sys
from stepwarden_agent import Agent
agent = Agent.from_env()
held = []
print("ready", flush=True)
for line in sys.stdin:
    name, seconds = line.split()
    if float(seconds):
        held.append(agent.lease(name, float(seconds)))
    else:
        held.pop().release()
    print("done", flush=True)
"""


def test_leases_add_up_whichever_the_page_shows(life: Life, tmp_path: Path) -> None:
    """The agent shows the one that runs out last; a shorter one beside it may be shown again."""
    with engine(SWAPPER, agent_environment(pages=tmp_path)) as process:
        assert process.stdin is not None
        assert line_from(process) == "ready"

        def after(line: str) -> tuple[Lease, ...]:
            assert process.stdin is not None
            process.stdin.write(line + "\n")
            process.stdin.flush()
            assert line_from(process) == "done"
            read_pages(life, lambda _: True, time.monotonic())
            return evidence_of(life).ranks["0"].leases

        assert [lease.seconds for lease in after("load 60")] == [60.0]
        both = after("swap 90")
        assert [(lease.seconds, lease.end is None) for lease in both] == [(60, False), (90, True)]
        again = after("swap 0")
        assert [(lease.seconds, lease.end is None) for lease in again] == [(60, True), (90, False)]
        assert again[0].begin == both[0].begin
        over = after("load 0")
        assert all(lease.end is not None for lease in over)
        assert evidence_of(life).ranks["0"].lease is None


def test_without_a_page_the_beats_tell_of_each_lease_in_turn(life: Life) -> None:
    def told(seq: int, lease: LeaseFacts | None, now: float) -> list[tuple[str, float | None]]:
        facts = BeatFacts("0", seq, 70, 5, float(seq), False, lease=lease)
        take_beat(life, facts, now)
        return [(one.name, one.end) for one in evidence_of(life).ranks["0"].leases]

    load, swap = LeaseFacts("load", 1.0, 60.0), LeaseFacts("swap", 3.0, 9.0)
    assert told(1, load, 110.0) == [("load", None)]
    assert told(2, load, 111.0) == [("load", None)]
    assert told(3, swap, 112.0) == [("load", 112.0), ("swap", None)]
    assert told(4, None, 113.0) == [("load", 112.0), ("swap", 113.0)]
    assert told(5, load, 114.0) == [("load", None), ("swap", 113.0)]


def test_only_the_newest_leases_are_remembered(life: Life) -> None:
    for seq in range(1, 60):
        facts = BeatFacts("0", seq, 70, 5, float(seq), False, lease=LeaseFacts("x", seq, 1.0))
        take_beat(life, facts, 100.0 + seq)
    leases = evidence_of(life).ranks["0"].leases
    assert len(leases) == KEPT_LEASES
    assert leases[-1].begin == 159.0


def test_a_new_process_of_a_rank_has_no_leases_of_the_former(life: Life) -> None:
    lease = LeaseFacts("load", 1.0, 60.0)
    take_beat(life, BeatFacts("0", 1, 70, 5, 1.0, False, lease=lease), 110.0)
    take_beat(life, BeatFacts("0", 1, 71, 6, 1.0, False), 111.0)
    assert evidence_of(life).ranks["0"].leases == ()


FORKER = """
import os, sys, time
from stepwarden_agent import Agent
agent = Agent.from_env()
agent.end(agent.begin(1, 1, "decode"))
child = os.fork()
if not child:
    agent.end(agent.begin(1, 1, "decode"))
    print(os.getpid(), flush=True)
time.sleep(60)
"""


def test_beats_are_believed_again_of_one_whose_forked_child_gave_the_rank_back(
    life: Life, tmp_path: Path
) -> None:
    def told_by(process: ProcessId | None, seq: int, now: float) -> bool:
        assert process is not None
        facts = BeatFacts("0", seq, process.pid, process.start_ticks, 1.0, False)
        take_beat(life, facts, now)
        return evidence_of(life).ranks["0"].beat_at == now

    with engine(FORKER, agent_environment(pages=tmp_path)) as process:
        child = int(line_from(process))
        try:
            read_pages(life, lambda _: True, time.monotonic())
            assert life.ranks["0"].process == identify(child)
            assert told_by(identify(child), 1, time.monotonic())
            assert not told_by(identify(process.pid), 7, time.monotonic())
        finally:
            os.kill(child, signal.SIGKILL)
        wait_for(lambda: _holds(life) == process.pid)
        assert told_by(identify(process.pid), 8, time.monotonic())


def _holds(life: Life) -> int | None:
    read_pages(life, lambda _: True, time.monotonic())
    page = life.ranks["0"].page
    return None if page is None else page.holder


def test_a_page_that_is_nonsense_never_ended_fewer_steps_than_none(
    life: Life, tmp_path: Path
) -> None:
    """A count below 0 fits no message: `status` would fail for all workers."""
    code = (
        "import sys\n"
        "from stepwarden_agent.page_file import create_page\n"
        "from stepwarden_proto import page, ring\n"
        "words = create_page(sys.argv[1], '0', 'idle').words\n"
        "for start in ring.SLOT_STARTS:\n"
        "    words[start + page.S_FIRST] = words[start + page.S_LAST] = 1\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    code = f"import sys; sys.argv[1:] = [{str(tmp_path)!r}]\n{code}"
    with engine(code, agent_environment()) as process:
        assert line_from(process) == "ready"
        read_pages(life, lambda _: True, time.monotonic())
        rank = evidence_of(life).ranks["0"]
        assert (len(rank.steps), rank.steps_begun, rank.steps_ended) == (16, 1, 0)
