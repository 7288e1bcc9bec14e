"""The stub worker itself: its commands do what the stories rely on."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stepwarden.core.deadline import elapsed
from stepwarden.edge.page_reader import PageReader, PageView
from support.agent_process import agent_environment
from support.stub_control import STUB_COMMAND, StubControl
from support.waiting import wait_for


class Running:
    """One stub with a page and no supervisor."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.reader = PageReader(directory)
        environment = agent_environment(pages=directory) | {"STUB_DIR": str(directory)}
        self.process = subprocess.Popen(STUB_COMMAND, env=environment)
        self.control = StubControl(directory)

    def wait(self, wanted: Callable[[PageView], object]) -> PageView:
        """The page's view as soon as it is `wanted`."""

        def look() -> PageView | None:
            view = self.reader.read(time.monotonic()).get("0")
            return view if view is not None and wanted(view) else None

        return wait_for(look)


@pytest.fixture
def stub(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path)
    yield running
    running.process.kill()
    running.process.wait()
    running.reader.close()


def test_steps_freeze_and_idle(stub: Running) -> None:
    stub.control.send("step 50 8")
    assert stub.wait(lambda view: view.steps_begun > 10).overflows == 0
    stub.control.send("freeze")
    frozen = stub.wait(lambda view: view.steps and view.steps[0].num_seqs == 4)
    later = stub.wait(lambda view: view.tick > frozen.tick + 1)
    assert later.steps == frozen.steps
    stub.control.send("idle")
    assert stub.wait(lambda view: not view.steps).phase == "idle"
    assert stub.control.status()["mode"] == "idle"


def test_a_bounded_freeze_goes_back_to_stepping(stub: Running) -> None:
    stub.control.send("step 50 8")
    stub.control.send("batch 3")
    stub.control.send("freeze 0.3")
    frozen = stub.wait(lambda view: view.steps and view.steps[0].num_seqs == 3)
    stub.wait(lambda view: view.steps_begun > frozen.steps_begun + 5)
    assert stub.control.status()["mode"] == "step"


ROUNDING = 0.001
"""A page counts microseconds, and the stub's sleep begins a little before its step's stamp."""


def test_scripted_steps_have_their_lengths(stub: Running) -> None:
    stub.control.send("steps 1.2 0.9")
    first, second = stub.wait(lambda view: len(view.last_ended) == 2).last_ended
    # Each is long enough for a look of the beat thread, so that its end is stamped.
    assert first.seconds is not None
    assert second.seconds is not None
    assert first.seconds >= 1.2 - ROUNDING
    assert second.seconds >= 0.9 - ROUNDING


def test_mute_stops_the_tick_and_silence_does_not(stub: Running) -> None:
    stub.control.send("silence")
    muted = stub.wait(lambda view: view.tick >= 2)
    stub.wait(lambda view: view.tick > muted.tick)
    stub.control.send("mute")

    # Two ticks and more are missing, and more than the one that may have been under way.
    stub.wait(lambda view: elapsed(view.tick_at, time.monotonic()) > 2.5)


def test_signals_are_logged_and_term_can_be_ignored(stub: Running) -> None:
    stub.control.send("ignore-term")
    stub.process.send_signal(signal.SIGTERM)
    stub.process.send_signal(signal.SIGHUP)
    wait_for(lambda: len(stub.control.signals()) >= 2)
    assert {(entry.pid, entry.name) for entry in stub.control.signals()} == {
        (stub.process.pid, "SIGTERM"),
        (stub.process.pid, "SIGHUP"),
    }
    stub.control.tell("exit 7")
    assert stub.process.wait(10) == 7


def test_term_ends_it_cleanly(stub: Running) -> None:
    assert stub.control.status()["pid"] == stub.process.pid
    stub.process.send_signal(signal.SIGTERM)
    assert stub.process.wait(10) == 0
    view = stub.wait(lambda _: True)
    assert view.closed
    assert view.holder is None


def test_it_dies_of_the_signal_asked_for(stub: Running) -> None:
    stub.control.tell("raise ABRT")
    assert stub.process.wait(10) == -signal.SIGABRT


def test_the_tree_holds_its_locks_in_two_sessions(stub: Running) -> None:
    stub.control.send("tree")
    pids = {
        name: int((stub.directory / f"{name}.pid").read_text())
        for name in ("main", "child_a", "child_b", "grandchild")
    }
    try:
        assert pids["main"] == stub.process.pid
        assert os.getsid(pids["child_a"]) == os.getsid(pids["main"])
        assert os.getsid(pids["child_b"]) == os.getsid(pids["grandchild"]) == pids["child_b"]
    finally:
        for name in ("child_a", "child_b", "grandchild"):
            os.kill(pids[name], signal.SIGKILL)
