"""The command is a wrapper: a shell, a pipe into tee, a program that forks and forks again.

The wrapper is the worker's main process, whoever computes below it. While it runs, all goes as
without it. When it ends, the worker is DEAD, whatever lives on of it is ended, and only then does
the next one start.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator

import psutil
import pytest
from support.crew import PYTHON, Crew, Section, data, living, shell
from support.stub_control import STUB_COMMAND
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(120)

ENGINE = shlex.join(STUB_COMMAND)
DEFAULTS = {
    "startup": {"budget": "60s", "first_step": "100ms"},
    "retry": {"window": "1s"},
    "restart": {"delay": "100ms", "jitter": 0, "limit": 3, "within": "10m"},
    "stop": {"grace": "2s"},
}
FLAT = {"step": {"base": "2s", "per_seq": 0, "max": "30s", "hard_cap": "3s"}}

# It starts the engine in a session of its own whose parent has ended, then does what argv[1] says.
DOUBLE_FORKS = f"""
import os, sys, time
directory = os.environ["STUB_DIR"]
control = directory + "/stub.sock"
if os.path.exists(control):
    os.unlink(control)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(directory + "/pids", "a").write(f"{{os.getpid()}}\\n")
        os.execv({sys.executable!r}, {STUB_COMMAND!r})
    os._exit(0)
os.wait()
if sys.argv[1] == "stay":
    time.sleep(3600)
while not os.path.exists(control): time.sleep(0.01)
"""
DOUBLE = [PYTHON, "-c", DOUBLE_FORKS]
STAYING: dict[str, Section] = {
    "shell": shell(f"{ENGINE}; echo done"),
    "tee": shell(f"{ENGINE} 2>&1 | tee $STUB_DIR/out.log"),
    "forks": {"command": [*DOUBLE, "stay"]},
}
LEAVING = {"leaves": {"command": [*DOUBLE, "leave"]}}


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    workers = {
        name: {**section, "env": {"STUB_SCRIPT": "tree; attach; idle"}, "backend": "flat"}
        for name, section in {**STAYING, **LEAVING}.items()
    }
    for name in STAYING:
        workers[name]["agent"] = "required"
    with Crew(workers, backends={"flat": FLAT}, defaults=DEFAULTS) as crew:
        crew.ready(*STAYING)
        yield crew


@pytest.fixture(scope="module")
def first_lives(crew: Crew) -> dict[str, set[int]]:
    """The trees that hang from now on."""
    trees = {name: tree_of(crew, name) for name in STAYING}
    for name in STAYING:
        crew.stub(name).send("freeze")
    return trees


def engine_of(crew: Crew, worker: str) -> int:
    pid = crew.stub(worker).status()["pid"]
    assert isinstance(pid, int)
    return pid


def tree_of(crew: Crew, worker: str) -> set[int]:
    """The pids of its present life: the main process, the engine, and all below both."""
    main = psutil.Process(crew.status()[worker].pid)
    engine = psutil.Process(engine_of(crew, worker))
    found = {main, engine, *main.children(recursive=True), *engine.children(recursive=True)}
    return {process.pid for process in found}


@pytest.mark.parametrize("worker", STAYING)
def test_o_proc_2_a_hung_engine_below_a_wrapper_is_replaced_whole(
    crew: Crew, first_lives: dict[str, set[int]], worker: str
) -> None:
    old = first_lives[worker]
    dead = crew.wait_transition(worker, "DEAD")
    assert dead.cause == "step"
    crew.wait_event(lambda e: e.to_state == "HEALTHY" and e.incarnation == "2", worker=worker)
    assert not living(list(old))
    new = tree_of(crew, worker)
    assert not new & old
    assert crew.status()[worker].pid != engine_of(crew, worker)
    assert not (crew.directory / worker / "overlap").exists(), "two engines at one time"


@pytest.mark.usefixtures("first_lives")
@pytest.mark.parametrize("worker", STAYING)
def test_o_proc_2_stop_ends_engine_shell_and_tee(crew: Crew, worker: str) -> None:
    crew.wait_event(lambda e: e.to_state == "HEALTHY" and e.incarnation == "2", worker=worker)
    tree = tree_of(crew, worker)
    assert len(tree) >= 5
    assert crew.cli("stop", worker, "--config", str(crew.config)).returncode == 0
    assert crew.status()[worker].state == "STOPPED"
    assert not living(list(tree))


def test_o_proc_2_the_engine_of_a_wrapper_that_ended_is_ended_first(crew: Crew) -> None:
    """It is restarted as any worker whose main process ended, within its restart budget."""
    failed = crew.wait_transition("leaves", "FAILED")
    events = crew.events("leaves")
    deaths = [event for event in events if event.to_state == "DEAD"]
    assert [(event.cause, data(event)["exit"]) for event in deaths] == [("exit", "exit code 0")] * 3
    assert len([event for event in events if event.kind == "started"]) == 3
    assert failed.cause == "exit"
    assert not (crew.directory / "leaves" / "overlap").exists(), "two engines at one time"
    pids = [int(line) for line in (crew.directory / "leaves" / "pids").read_text().split()]
    assert len(pids) == 3
    wait_for(lambda: not living(pids))
