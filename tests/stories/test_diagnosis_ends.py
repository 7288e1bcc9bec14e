"""Ends, silence, rest and our own pauses, of real processes: each is told by its word."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from support.cgroups import frozen, short_of_memory
from support.crew import Crew, data, shell, stub
from support.stub_control import StubGone
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(240)

LIMIT = 300 << 20
GREEDY = f"grown = b'x' * {2 * LIMIT}"
FLAT = {"step": {"base": 20, "per_seq": 0, "max": "60s"}}
DEFAULTS = {
    "heartbeat": {"interval": "200ms", "timeout": "3s"},
    "startup": {"budget": "60s"},
    "retry": {"window": "3s"},
    "restart": {"delay": "100ms", "jitter": 0},
    "stop": {"grace": "1s"},
}


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    greedy = f"{shlex.quote(sys.executable)} -c {shlex.quote(GREEDY)}"
    workers = {
        "idle": stub(backend="flat"),
        "channel": stub(backend="flat"),
        "mute": stub(backend="flat"),
        "exits": stub(backend="flat"),
        "greedy": shell(f"while ! mv grow grown 2>/dev/null; do sleep 0.1; done; exec {greedy}"),
        "stuck": shell("sleep 1000 & wait"),
    }
    with Crew(workers, backends={"flat": FLAT}, defaults=DEFAULTS) as found:
        found.ready()
        yield found


def test_nothing_in_flight_is_idle(crew: Crew) -> None:
    shown = crew.wait_status("idle", lambda seen: seen.diagnosis == "idle", "idle")
    assert shown.state == "HEALTHY"
    assert "nothing is in flight" in shown.grounds


def test_a_page_that_moves_without_beats_is_a_silent_agent(crew: Crew) -> None:
    crew.stub("channel").send("silence")
    told = crew.wait_event(lambda event: event.kind == "agent_silent", worker="channel")
    assert data(told)["diagnosis"] == "agent_silent"
    shown = crew.status()["channel"]
    assert (shown.state, shown.diagnosis) == ("HEALTHY", "agent_silent")
    assert "its channel is at fault" in shown.grounds


def test_an_agent_that_is_gone_while_its_process_lives_is_silent(crew: Crew) -> None:
    crew.stub("mute").send("mute")
    alarm = crew.wait_transition("mute", "UNHEALTHY")
    assert alarm.cause == "heartbeat"
    assert data(alarm)["diagnosis"] == "agent_silent", alarm.sentence
    dead = crew.wait_transition("mute", "DEAD")
    assert "diagnosis agent_silent: no beat of rank 0" in dead.sentence


def test_an_end_is_told_with_its_exit_code(crew: Crew) -> None:
    with suppress(StubGone):
        crew.stub("exits").send("exit 3")
    dead = crew.wait_transition("exits", "DEAD")
    assert data(dead)["diagnosis"] == "exited"
    assert "exit code 3" in data(dead)["grounds"]


def test_a_kill_for_lack_of_memory_is_told(crew: Crew) -> None:
    pid = crew.status()["greedy"].pid
    with short_of_memory(LIMIT, pid):
        (Path(psutil.Process(pid).cwd()) / "grow").touch()
        dead = crew.wait_transition("greedy", "DEAD")
        assert data(dead)["diagnosis"] == "oom", dead.sentence
        assert "for lack of memory" in data(dead)["grounds"]


def test_what_cannot_be_killed_is_told(crew: Crew) -> None:
    main = psutil.Process(crew.status()["stuck"].pid)
    wait_for(main.children)
    (child,) = main.children()
    with frozen(child.pid):
        main.kill()
        failed = crew.wait_transition("stuck", "FAILED")
        assert data(failed)["diagnosis"] == "unkillable"
        shown = crew.status()["stuck"]
        assert shown.diagnosis == "unkillable"
        assert f"leftover pids {child.pid}" in shown.grounds
    crew.wait_event(lambda e: e.to_state == "HEALTHY" and e.incarnation == "2", worker="stuck")


def test_our_own_pause_is_told_as_ours(crew: Crew) -> None:
    before = len(crew.events())
    os.kill(crew.pid, signal.SIGSTOP)
    stopped = psutil.Process(crew.pid)
    wait_for(lambda: stopped.status() == psutil.STATUS_STOPPED)
    signal.sigtimedwait([], 2.0)  # it has to stand still for a while
    os.kill(crew.pid, signal.SIGCONT)
    event = crew.wait_event(
        lambda each: each.kind == "supervisor_paused" and data(each)["seconds"] >= 1.5
    )
    assert data(event)["diagnosis"] == "supervisor_paused"
    assert len(crew.events()) > before
    assert crew.status()["idle"].deaths == 0
