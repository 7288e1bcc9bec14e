"""The daemon as PID 1 of a container, and as the subreaper that it is everywhere else."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support.crew import PYTHON, Crew, data, shell, stub
from support.pid_namespace import CONTAINER, Contained
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(120)

ORPHANS = 200
PROMPT = 5.0
DEFAULTS = {"restart": {"delay": "100ms", "jitter": 0}, "stop": {"grace": "5s"}}

# Each orphan waits for the end of a pipe, so that all of them end at one moment.
LEAVES_ORPHANS = f"""
import os, time
end, held = os.pipe()
for _ in range({ORPHANS}):
    if os.fork() == 0:
        if os.fork() == 0:
            os.close(held)
            os.read(end, 1)
        os._exit(0)
    os.wait()
open("forked", "w").close()
while not os.path.exists("go"): time.sleep(0.02)
os.close(held)
time.sleep(600)
"""
EXITS_WITH_7 = "while [ ! -e go ]; do sleep 0.05; done; [ -e again ] && exec sleep 600; "
EXITS_WITH_7 += "touch again; exit 7"


class Container(Contained, Crew):
    """The same with a crew."""


def no_containers() -> bool:
    """True where this user may not make a pid namespace with a /proc of its own."""
    try:
        return (
            subprocess.run([*CONTAINER, "true"], capture_output=True, check=False).returncode != 0
        )
    except FileNotFoundError:
        return True


KINDS = [
    pytest.param(Crew, id="subreaper"),
    pytest.param(
        Container,
        id="pid1",
        marks=pytest.mark.skipif(no_containers(), reason="this user may not make a pid namespace"),
    ),
]


@pytest.fixture(params=KINDS)
def crew(request: pytest.FixtureRequest) -> Iterator[Crew]:
    kind: type[Crew] = request.param
    workers = {
        "forks": {"command": [PYTHON, "-c", LEAVES_ORPHANS], "agent": "none", "backend": "gpu"},
        "ends": shell(EXITS_WITH_7),
        "serves": stub(),
    }
    with kind(workers, defaults=DEFAULTS) as crew:
        yield crew


def test_o_proc_4_orphans_are_reaped_and_exit_codes_kept(crew: Crew) -> None:
    crew.ready()
    daemon = psutil.Process(crew.pid)
    assert own_pid(daemon.pid) == (1 if isinstance(crew, Container) else daemon.pid)
    wait_for((crew.directory / "forked").exists)
    wait_for(lambda: len(daemon.children()) >= ORPHANS)
    (crew.directory / "go").touch()
    dead = crew.wait_transition("ends", "DEAD")
    assert (dead.cause, data(dead)["exit"]) == ("exit", "exit code 7")
    wait_for(lambda: len(daemon.children()) < 20 and not zombies(daemon), PROMPT)
    crew.wait_event(lambda e: e.to_state == "HEALTHY" and e.incarnation == "2", worker="ends")
    assert crew.states("serves")[-1] == crew.states("forks")[-1] == "HEALTHY"
    assert not [event for event in crew.events() if event.kind == "fault"]


def own_pid(pid: int) -> int:
    """What the process with this pid takes for its pid itself."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return pid


def zombies(parent: psutil.Process) -> list[psutil.Process]:
    found = []
    for child in parent.children():
        try:
            if child.status() == psutil.STATUS_ZOMBIE:
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found
