"""The guard of the loop: what it counts, what it ends, and what it says."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest
from stepwarden.clock import SystemClock
from stepwarden.edge.loop_guard import LOOK_SECONDS, MOST_OF_A_LOOK, LoopGuard, stack_of
from support.clocks import FakeClock
from support.waiting import wait_for


class Watched:
    """A loop whose stamp a test sets, and its guard, looked with by hand."""

    def __init__(self, limit: float) -> None:
        self.clock = FakeClock()
        self.stamp = self.clock.now
        self.guard = LoopGuard(lambda: self.stamp, limit, lambda _: None, self.clock)

    def looks(self, times: int, apart: float = LOOK_SECONDS) -> list[bool]:
        found = []
        for _ in range(times):
            self.clock.advance(apart)
            found.append(self.guard.look())
        return found


def test_a_loop_that_turns_is_left_alone() -> None:
    watched = Watched(5.0)
    for _ in range(100):
        watched.stamp = watched.clock.now
        assert watched.looks(4) == [False] * 4


def test_a_loop_that_stands_for_the_limit_is_found_once_it_is_reached() -> None:
    assert Watched(5.0).looks(5) == [False] * 4 + [True]


def test_a_pause_of_the_whole_process_counts_as_one_look() -> None:
    watched = Watched(5.0)
    assert watched.looks(1, apart=86400.0) == [False]
    assert watched.looks(2) == [False] * 2
    assert watched.looks(1) == [MOST_OF_A_LOOK + 3 * LOOK_SECONDS >= 5.0]


def test_a_turn_begins_the_count_anew() -> None:
    watched = Watched(5.0)
    watched.looks(4)
    watched.stamp = watched.clock.now
    assert watched.looks(5) == [False] * 5


@pytest.mark.parametrize("limit", [0.0, 1.5])
def test_it_looks_by_itself_unless_the_limit_is_0(limit: float) -> None:
    ended: list[float] = []
    guard = LoopGuard(lambda: 1.0, limit, ended.append, SystemClock())
    guard.start()
    if limit:
        wait_for(lambda: ended, 20, "the guard ends it")
        assert ended[0] >= limit
    else:
        assert "loop-guard" not in {thread.name for thread in threading.enumerate()}
    guard.stop()


def test_the_stack_is_that_of_one_thread() -> None:
    entered, leave = threading.Event(), threading.Event()

    def here_it_stands() -> None:
        entered.set()
        leave.wait(20)

    thread = threading.Thread(target=here_it_stands)
    thread.start()
    entered.wait(20)
    try:
        assert thread.ident is not None
        calls = stack_of(thread.ident)
    finally:
        leave.set()
        thread.join()
    assert any("in here_it_stands" in call for call in calls)
    assert not any("in test_the_stack" in call for call in calls)
    assert stack_of(1) == []


ENDING = """
import sys, threading, time
from stepwarden.edge import loop_guard
loop_guard.LAST_WORDS_SECONDS = 1.0
def last_words():
    {0}
threading.Thread(target=loop_guard.end_surely, args=(9, last_words)).start()
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("sys.stderr.write('the last words'); sys.stderr.flush()", 9),
        ("raise RuntimeError", 9),
        ("time.sleep(60)", 1),
        ("import ctypes; ctypes.PyDLL(None).sleep(60)", 1),
    ],
)
def test_the_end_is_sure_whatever_becomes_of_the_last_words(words: str, code: int) -> None:
    """Also where they hang with the interpreter lock held."""
    ran = subprocess.run(
        [sys.executable, "-c", ENDING.format(words)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == code, ran.stderr
    assert ran.stderr == ("the last words" if "stderr" in words else "")
