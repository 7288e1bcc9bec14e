"""The agent must not harm its engine: no supervisor, no page, fork, exit in every form."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

import pytest
from stepwarden.edge.page_reader import PageReader
from stepwarden_proto import page
from support.agent_process import (
    agent_environment,
    engine,
    let_end,
    line_from,
    run_engine,
    wait_ticks,
)
from support.heard_engine import heard

STEP = """
from stepwarden_agent import Agent
agent = Agent.from_env()
for n in range(50):
    handle = agent.begin(n, n, "decode")
    agent.end(handle)
with agent.step(1, 1), agent.lease("x", 5.0):
    agent.phase("decode")
agent.work(unfinished=1)
agent.loop_turn()
agent.detail("text")
"""

STEP_AND_WAIT = STEP + "import sys; sys.stdin.readline()\n"


def test_without_environment_it_does_nothing_at_all() -> None:
    code = STEP + (
        "import sys, threading\n"
        "assert handle == 0 and not agent.active\n"
        "assert threading.active_count() == 1\n"
        "assert 'grpc' not in sys.modules and 'google.protobuf' not in sys.modules\n"
    )
    done = run_engine(code, agent_environment())
    assert (done.returncode, done.stderr) == (0, "")


def test_importing_it_imports_no_grpc(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom stepwarden_agent import Agent\n"
        "assert not any(n.split('.')[0] in ('grpc', 'google') for n in sys.modules)\n"
        "Agent.from_env(); assert 'grpc' not in sys.modules\n"
    )
    done = run_engine(code, agent_environment(pages=tmp_path))
    assert (done.returncode, done.stderr) == (0, "")


def test_no_supervisor_is_one_line_and_no_more(tmp_path: Path) -> None:
    """Long enough for several tries."""
    target = f"unix:{tmp_path}/none.sock"
    with engine(STEP_AND_WAIT, agent_environment(target, tmp_path)) as process:
        wait_ticks(tmp_path, 4)
        code, _, errors = let_end(process)
    assert code == 0
    lines = [line for line in errors.splitlines() if line]
    assert len(lines) == 1, lines
    assert str(tmp_path / "none.sock") in lines[0]


def test_a_missing_page_directory_leaves_the_beats(tmp_path: Path) -> None:
    with heard(STEP_AND_WAIT, tmp_path, tmp_path / "missing") as (server, process):
        beat = server.wait_for(lambda beat: int(beat.get("steps_ended", 0)) == 51)
        assert "page" not in beat
        code, _, errors = let_end(process)
        assert code == 0
        assert str(tmp_path / "missing") in errors
        assert len(errors.splitlines()) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_unwritable_page_directory_is_one_line(tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    done = run_engine(STEP, agent_environment(pages=tmp_path))
    assert done.returncode == 0
    assert str(tmp_path) in done.stderr


def test_a_target_that_makes_no_sense_is_one_line(tmp_path: Path) -> None:
    environment = agent_environment("no-such-scheme://\0x"[:16], tmp_path)
    with engine(STEP_AND_WAIT, environment) as process:
        wait_ticks(tmp_path, 3)
        code, _, errors = let_end(process)
    assert code == 0
    assert errors.count("\n") <= 1


@pytest.mark.parametrize("code", ["import os; os._exit(7)", "import sys; sys.exit(7)"])
def test_the_exit_code_is_the_engines(code: str, tmp_path: Path) -> None:
    with heard(STEP_AND_WAIT + code, tmp_path) as (server, process):
        server.wait_for(lambda _: True)
        ended, _, errors = let_end(process)
        assert (ended, errors) == (7, "")
        said = [beat.get("reason") for beat in server.beats()]
        assert said[0] == "BEAT_REASON_ATTACH"
        assert ("BEAT_REASON_BYE" in said) == ("sys.exit" in code)
    view = PageReader(tmp_path).read(time.monotonic())["0"]
    assert view.closed == ("sys.exit" in code)
    assert view.holder is None


EXIT_SPEED = (
    STEP
    + """
import sys, time
print("running", flush=True)
sys.stdin.readline()
began = time.monotonic()
agent.close()
print(time.monotonic() - began, flush=True)
"""
)


def test_a_frozen_supervisor_delays_neither_steps_nor_exit(tmp_path: Path) -> None:
    with heard(EXIT_SPEED, tmp_path) as (server, process):
        assert line_from(process) == "running"
        server.wait_for(lambda beat: int(beat["seq"]) >= 2)
        server.freeze()
        wait_ticks(tmp_path, 3)
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        assert float(line_from(process)) < 5.0
        assert process.wait(20) == 0
        server.thaw()


FORK = """
import os, sys
from stepwarden_agent import Agent
agent = Agent.from_env(phase="loading")
agent.phase("idle")
begin, end = agent.begin, agent.end
handle = begin(1, 10, "decode")
{wait}
quiet = os.fork()
if quiet == 0:
    end(handle)                       # the parent's step; not ours to end
    os._exit(0)
assert os.waitpid(quiet, 0)[1] == 0
child = os.fork()
if child == 0:
    inner = begin(2, 20, "prefill")
    assert inner == 1
    print("child", os.getpid(), flush=True)
    sys.stdin.readline()
    end(inner)
    os._exit(0)
os.waitpid(child, 0)
print("over", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("wait", ["", "sys.stdin.readline()"], ids=["while importing", "connected"])
def test_a_forked_child_that_steps_gets_a_page_of_its_own(wait: str, tmp_path: Path) -> None:
    with heard(FORK.replace("{wait}", wait), tmp_path) as (server, process):
        assert process.stdin is not None
        if wait:
            server.wait_for(lambda _: True)
            process.stdin.write("fork\n")
            process.stdin.flush()
        _, child = line_from(process).split()
        reader = PageReader(tmp_path)
        view = reader.read(time.monotonic())["0"]
        assert (view.pid, view.holder) == (int(child), int(child))
        assert [step.num_seqs for step in view.steps] == [2]
        names = {page.page_name("0", pid) for pid in (process.pid, int(child))}
        assert {path.name for path in tmp_path.glob("*.page")} == names
        process.stdin.write("on\n")
        process.stdin.flush()
        assert line_from(process) == "over"
        parent = reader.read(time.monotonic())["0"]
        assert (parent.pid, parent.holder) == (process.pid, process.pid)
        assert [(step.number, step.num_seqs) for step in parent.steps] == [(1, 1)]
        process.stdin.write("end\n")
        process.stdin.flush()
        assert process.wait(20) == 0


def test_the_same_rank_twice_is_one_agent(tmp_path: Path) -> None:
    code = (
        "from stepwarden_agent import Agent\n"
        "a, b, c = Agent.from_env('0'), Agent.from_env('0'), Agent.from_env('core')\n"
        "assert a is b and a is not c\n"
    )
    done = run_engine(code, agent_environment(pages=tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert len(list(tmp_path.glob("*.page"))) == 2


def test_a_child_of_multiprocessing_says_bye(tmp_path: Path) -> None:
    go = tmp_path / "go"
    code = (
        "import multiprocessing, os, time\n"
        "from stepwarden_agent import Agent\n"
        "def work():\n"
        "    agent = Agent.from_env('9')\n"
        "    agent.end(agent.begin(1, 1, 'decode'))\n"
        f"    while not os.path.exists({str(go)!r}): time.sleep(0.02)\n"
        "child = multiprocessing.get_context('fork').Process(target=work)\n"
        "child.start(); child.join(); assert child.exitcode == 0\n"
    )
    with heard(code, tmp_path) as (server, process):
        server.wait_for(lambda beat: beat["rank"] == "9")
        go.touch()
        assert let_end(process) == (0, "", "")
        server.wait_for(lambda beat: beat.get("reason") == "BEAT_REASON_BYE")


def test_a_program_that_gives_way_by_exec_leaves_no_page_that_speaks_for_the_next(
    tmp_path: Path,
) -> None:
    """Pid and start time stay, the lock goes: the old page would show the old step for ever."""
    code = (
        "import os, sys, time\n"
        "from stepwarden_agent import Agent\n"
        "agent = Agent.from_env()\n"
        "if os.environ.get('AGAIN'):\n"
        "    agent.end(agent.begin(5, 5, 'decode'))\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
        "agent.begin(1, 1, 'decode')\n"
        "os.environ['AGAIN'] = '1'\n"
        "os.execv(sys.executable, [sys.executable, '-c', sys.argv[1], sys.argv[1]])\n"
    )
    code = f"import sys; sys.argv[1:] = [{code!r}]; exec(sys.argv[1])"
    with engine(code, agent_environment(pages=tmp_path)) as process:
        assert line_from(process) == "ready"
        view = PageReader(tmp_path).read(time.monotonic())["0"]
        assert (view.steps, view.steps_begun, view.holder) == ((), 1, process.pid)


def test_arguments_that_raise_when_they_are_looked_at_reach_nobody(tmp_path: Path) -> None:
    code = (
        "from stepwarden_agent import Agent\n"
        "class Bad:\n"
        "    def fail(self, *_): raise RuntimeError('bad')\n"
        "    __str__ = __repr__ = __eq__ = __hash__ = __index__ = __float__ = __lt__ = fail\n"
        "agent, bad = Agent.from_env(), Bad()\n"
        "agent.phase(bad); agent.detail(bad); agent.work(bad); agent.end(bad)\n"
        "agent.end(agent.begin(bad, bad, bad)); agent.lease(bad, bad).release()\n"
        "Agent.from_env(bad, bad)\n"
    )
    assert run_engine(code, agent_environment(pages=tmp_path)).returncode == 0
