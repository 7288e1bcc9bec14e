"""A hunt for torn reads: one process writes as fast as it can, this one reads as fast as it can.

Steps overlap and are ended from another thread. Every field of a step is a function of its
number, so that a mixture of two steps is seen whatever its kind. STEPWARDEN_TORN_SECONDS sets
how long the hunt lasts (5 s; 60 s in `make soak`).
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from stepwarden.edge.page_reader import PageReader, PageView
from stepwarden_proto.page import RING_SLOTS
from support.agent_process import agent_environment, engine, line_from

FAST_SECONDS = 5.0
SOAK_SECONDS = 60.0

# Shapes follow from the step number, which begin() gives out in order.
WRITER = """
import collections, queue, sys, threading
from stepwarden_agent import Agent
PHASES = ("prefill", "decode", "draining")
agent = Agent.from_env()
begin, end = agent.begin, agent.end
open_steps, stopped = queue.SimpleQueue(), []
room = threading.Semaphore(6)
def finish():
    while True:
        end(open_steps.get())
        room.release()
threading.Thread(target=finish, daemon=True).start()
threading.Thread(target=lambda: stopped.append(sys.stdin.readline()), daemon=True).start()
print("ready", flush=True)
number = 0
while not stopped:
    for _ in range(1000):
        room.acquire()
        number += 1
        handle = begin(number * 3, number * 7 + 1, PHASES[number % 3])
        assert handle == number, (handle, number)
        open_steps.put(handle)
print(number, agent._page.words[18], flush=True)
"""
PHASES = ("prefill", "decode", "draining")


def check(view: PageView, before: PageView | None, now: float) -> None:
    """Every step in `view` is one that the writer really made."""
    numbers = [step.number for step in view.steps]
    assert numbers == sorted(set(numbers))
    assert all(number <= view.steps_begun for number in numbers)
    for step in view.steps:
        assert step.num_seqs == step.number * 3, step
        assert step.num_tokens == step.number * 7 + 1, step
        assert step.phase == PHASES[step.number % 3], step
        assert step.begin <= now
    for ended in view.last_ended:
        assert ended.seconds is None or 0.0 <= ended.seconds < 10.0, ended
    if before is not None:
        assert view.steps_begun >= before.steps_begun
        assert view.tick >= before.tick
    begins = [step.begin for step in view.steps]
    assert begins == sorted(begins)


def hunt(pages: Path, seconds: float) -> None:
    reader = PageReader(pages)
    with engine(WRITER, agent_environment(pages=pages)) as writer:
        assert writer.stdin is not None
        assert line_from(writer) == "ready"
        until = time.monotonic() + seconds
        view, seen, moving = None, 0, 0
        while time.monotonic() < until:
            view, before = reader.read(time.monotonic())["0"], view
            check(view, before, time.monotonic())
            seen += len(view.steps)
            moving += view.in_motion
            if writer.poll() is not None:
                break  # line_from tells why
        else:
            writer.stdin.write("stop\n")
            writer.stdin.flush()
        total, overflows = map(int, line_from(writer).split())
    reader.close()
    assert total > RING_SLOTS * 100
    assert overflows == 0
    assert seen > 100, (seen, moving)


def test_no_torn_read(tmp_path: Path) -> None:
    hunt(tmp_path, float(os.environ.get("STEPWARDEN_TORN_SECONDS", FAST_SECONDS)))


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_no_torn_read_for_a_minute(tmp_path: Path) -> None:
    hunt(tmp_path, float(os.environ.get("STEPWARDEN_TORN_SECONDS", SOAK_SECONDS)))
