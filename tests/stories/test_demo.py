"""`make demo` tells its whole story, and leaves nothing running however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest
from support import processes
from support.daemon import ROOT

LIMIT = 200.0

pytestmark = pytest.mark.timeout(300)


class Demo:
    """A running demo; its lines are read as they come."""

    def __init__(self) -> None:
        self.mark = uuid.uuid4().hex
        self.output = ""
        paths = [os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(":") if p]
        extra = {"PYTHONPATH": ":".join(paths), processes.MARK_VARIABLE: self.mark}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stepwarden.demo"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | extra,
            cwd=ROOT,
        )

    def read_until(self, text: str) -> None:
        """Read lines until one has `text` in it; fails when the demo ends before."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.output += line
            if text in line:
                return
        raise AssertionError(f"it ended without {text!r}:\n{self.output}")

    def finish(self) -> int:
        """Its exit code; not one process of it is left."""
        rest, _ = self.process.communicate(timeout=LIMIT)
        self.output += rest
        left = processes.marked(self.mark)
        assert not left, f"left behind: {processes.describe(left)}\n{self.output}"
        return self.process.returncode


@pytest.fixture
def demo() -> Iterator[Demo]:
    started = Demo()
    yield started
    if started.process.poll() is None:
        started.process.kill()
        started.process.communicate()
    processes.end(processes.marked(started.mark))


def test_the_whole_story(demo: Demo) -> None:
    code = demo.finish()
    assert code == 0, demo.output
    acts = [" ".join(act.split()) for act in demo.output.split("\n\n") if act.strip()]
    alone, small, large, frozen = acts[:4]
    assert "EngineDeadError: execute_model timed out after 2 s" in alone
    assert "HEALTHY, and quiet" in small
    assert "UNHEALTHY" not in small
    for text in ("UNHEALTHY", "working", "false_alarm", "would have killed this worker"):
        assert text in large
    assert "DEAD" not in large
    order = [frozen.index(word) for word in ("UNHEALTHY", " DEAD ", " STARTING ", " HEALTHY ")]
    assert order == sorted(order)
    assert "nothing is left running" in acts[-1]


@pytest.mark.parametrize("moment", ["long prompts arrive", "STARTING", "UNHEALTHY"])
def test_ctrl_c_leaves_nothing_running(demo: Demo, moment: str) -> None:
    demo.read_until(moment)
    demo.process.send_signal(signal.SIGINT)
    assert demo.finish() == 130
    assert "interrupted; nothing is left running" in demo.output
    assert "Traceback" not in demo.output


def test_a_daemon_that_dies_is_one_line_and_leaves_nothing(demo: Demo) -> None:
    demo.read_until("HEALTHY, and quiet")
    daemons = [p for p in processes.marked(demo.mark) if "run" in p.cmdline()]
    assert len(daemons) == 1
    daemons[0].kill()
    assert demo.finish() == 1
    last = demo.output.strip().splitlines()[-1]
    assert last.startswith("stepwarden demo: ")
    assert "daemon" in last
    assert "Traceback" not in demo.output
