"""The real vLLM under the real daemon: the slow one lives, the dead one is buried and replaced.

A start takes most of a minute, so the tests of one module share a worker and stand in the order
in which it can go through them: those that leave it healthy come first.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator

import psutil
import pytest
from support import vllm_server
from support.daemon import free_port
from support.vllm_daemon import CORE, RANK, WORKER, Supervised, supervised
from support.vllm_server import Poller, Serving, Tree, prompts

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

# A long prompt takes 10 to 25 s a step here: over the budget, far below the hard cap.
TIGHT = "{step: {base: 2s, per_seq: 0s, hard_cap: 10m, max: 30m}}"
AT_ONCE = 10.0


@pytest.fixture(scope="module")
def vllm() -> Iterator[Supervised]:
    with supervised(Serving("big", free_port(), max_model_len=4096), TIGHT) as running:
        running.wait_healthy()
        yield running


def tree_of(vllm: Supervised) -> Tree:
    return vllm_server.tree(vllm.status().pid)


def test_its_ranks_attach_by_the_entry_point(vllm: Supervised) -> None:
    tree = tree_of(vllm)
    assert vllm.ranks() == {RANK: tree.worker.pid, CORE: tree.core.pid}


def test_an_honest_slow_step_lives(vllm: Supervised) -> None:
    """The load that kills plain vLLM: UNHEALTHY, working, HEALTHY, everything answered."""
    before, mark = tree_of(vllm), vllm.last_event()
    answers = vllm.client.start(prompts(4, 2000), max_tokens=4)
    late = vllm.daemon.wait_transition(WORKER, "UNHEALTHY", after=mark)
    assert (late.cause, late.rank) == ("step", RANK)
    retry = vllm.daemon.wait_event(
        lambda event: event.kind == "retry" and event.id > mark, worker=WORKER, limit=60
    )
    assert "working" in retry.sentence
    assert "not working" not in retry.sentence
    assert [answer.result(vllm_server.ANSWER_LIMIT) for answer in answers] == [4] * 4
    vllm.daemon.wait_state(WORKER, "HEALTHY")
    happened = vllm.since(mark)
    assert any(event.kind == "false_alarm" and event.rank == RANK for event in happened)
    assert {event.to_state for event in happened} <= {"", "UNHEALTHY", "HEALTHY"}
    assert tree_of(vllm) == before
    assert vllm.status().restarts_used == 0


def test_stopped_for_less_than_the_window_it_recovers(vllm: Supervised) -> None:
    before, mark = tree_of(vllm), vllm.last_event()
    answers = vllm.client.start(prompts(1, 1900), max_tokens=4)
    vllm.wait_long_step()
    before.worker.send_signal(signal.SIGSTOP)
    try:
        late = vllm.daemon.wait_transition(WORKER, "UNHEALTHY", after=mark)
    finally:
        before.worker.send_signal(signal.SIGCONT)
    assert late.rank == RANK
    assert [answer.result(vllm_server.ANSWER_LIMIT) for answer in answers] == [4]
    vllm.daemon.wait_state(WORKER, "HEALTHY")
    happened = vllm.since(mark)
    assert any(event.kind == "false_alarm" for event in happened)
    assert not any(event.to_state == "DEAD" for event in happened)
    assert tree_of(vllm) == before


def test_a_stopped_rank_is_found_buried_and_replaced(vllm: Supervised) -> None:
    """All the while /health is polled and answers: it never asks the engine."""
    old, mark = tree_of(vllm), vllm.last_event()
    incarnation = vllm.status().incarnation
    answers = vllm.client.start(prompts(2, 1800), max_tokens=4)
    vllm.wait_long_step()
    with Poller(vllm.client) as poller:
        old.worker.send_signal(signal.SIGSTOP)
        late = vllm.daemon.wait_transition(WORKER, "UNHEALTHY", after=mark)
        dead = vllm.daemon.wait_transition(WORKER, "DEAD", after=late.id)
        vllm.daemon.wait_transition(WORKER, "RESTARTING", after=dead.id)
        vllm.assert_gone(old)
    assert (late.cause, late.rank) == ("step", RANK)
    assert (dead.cause, dead.rank) == ("step", RANK)
    assert "stopped (state T)" in dead.sentence
    assert poller.healthy > 0
    assert all(answer.exception(30) is not None for answer in answers)
    new = vllm.wait_healthy(after=dead.id)
    assert vllm.status().incarnation != incarnation
    assert {p.pid for p in new.all}.isdisjoint(p.pid for p in old.all)


@pytest.mark.parametrize("victim", ["core", "api"])
def test_a_killed_part_takes_the_whole_tree_with_it(vllm: Supervised, victim: str) -> None:
    """Plain vLLM leaves orphans behind, and exits with code 0 where its core was killed."""
    old, mark = tree_of(vllm), vllm.last_event()
    process: psutil.Process = getattr(old, victim)
    process.send_signal(signal.SIGKILL)
    dead = vllm.daemon.wait_transition(WORKER, "DEAD", after=mark, limit=AT_ONCE)
    assert dead.cause in (("exit",) if victim == "api" else ("rank_exit", "exit"))
    assert not any(event.to_state == "UNHEALTHY" for event in vllm.since(mark))
    vllm.daemon.wait_transition(WORKER, "RESTARTING", after=dead.id)
    vllm.assert_gone(old)
    new = vllm.wait_healthy(after=dead.id)
    assert set(new.all).isdisjoint(old.all)


def test_the_command_line_tells_the_story(vllm: Supervised) -> None:
    where = ("--config", str(vllm.daemon.config))
    status = vllm.daemon.cli("status", "--json", *where)
    assert status.returncode == 0, status.stderr
    assert '"HEALTHY"' in status.stdout
    events = vllm.daemon.cli("events", "--json", *where)
    assert events.returncode == 0, events.stderr
    states = [json.loads(line).get("to_state") for line in events.stdout.splitlines()]
    assert states.count("DEAD") == 3


def test_requests_that_wait_while_no_step_begins_are_a_hang_too(vllm: Supervised) -> None:
    """The rank is stopped while it is idle: no step is open anywhere, only the core knows."""
    old, mark = tree_of(vllm), vllm.last_event()
    old.worker.send_signal(signal.SIGSTOP)
    answers = vllm.client.start(prompts(1, 100), max_tokens=4)
    late = vllm.daemon.wait_transition(WORKER, "UNHEALTHY", after=mark)
    assert (late.cause, late.rank) == ("scheduler", CORE)
    dead = vllm.daemon.wait_transition(WORKER, "DEAD", after=late.id, limit=120)
    assert dead.cause in ("scheduler", "heartbeat")
    vllm.daemon.wait_transition(WORKER, "RESTARTING", after=dead.id)
    vllm.assert_gone(old)
    assert answers[0].exception(30) is not None
