"""A worker that is truly ill: ``python ill_worker.py CONDITION`` has agents, and then is in it.

    spin     a step runs a bare Python loop; at a priority that gets it a CPU, where that is allowed
    burn     the same at its own priority
    lock     a step waits for a lock that is never released
    recv     a step waits for bytes that never come
    gil      a step calls sleep(3) without giving the interpreter lock back
    nap      a step sleeps for 4 s and ends
    vfork    a step starts a process that hangs before its exec: its parent is in state D
    read     a step reads without end
    behind   two ranks, each a process of its own, of which rank 1 does not begin its third step
    scheduler  requests wait and no step begins

It begins when a file `go` lies in STUB_DIR, and steps shortly before that.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from stepwarden_agent import Agent

HERE = Path(os.environ["STUB_DIR"])
FOREVER = 100_000


def wait_for(name: str) -> None:
    while not (HERE / name).exists():
        time.sleep(0.05)


def step_shortly(agent: Agent, times: int = 2) -> None:
    for _ in range(times):
        with agent.step(4, 4):
            time.sleep(0.02)


def be_first() -> None:
    """On a machine where others want every CPU too it would be starved before all."""
    with suppress(OSError):
        os.nice(-15)
    with suppress(OSError):  # where each session is a group for the scheduler, that decides
        Path("/proc/self/autogroup").write_text("-15")


def spin() -> None:
    be_first()
    while True:
        pass


def lock() -> None:
    never = threading.Lock()
    never.acquire()
    never.acquire()


def recv() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        ours.recv(1)


def gil() -> None:
    ctypes.PyDLL(None).sleep(FOREVER)


def nap() -> None:
    time.sleep(4.0)


def vfork() -> None:
    """The child opens a pipe that nobody writes to, and shares our memory until it has."""
    pipe = str(HERE / f"pipe-{os.getpid()}")
    os.mkfifo(pipe)
    action = (os.POSIX_SPAWN_OPEN, 0, pipe, os.O_RDONLY, 0)
    os.posix_spawn("/bin/true", ["true"], os.environ, file_actions=[action])


def burn() -> None:
    while True:
        pass


def read() -> None:
    be_first()
    with open("/dev/zero", "rb", buffering=0) as endless:
        while True:
            endless.read(1 << 20)


def hang(condition: Callable[[], None]) -> None:
    agent = Agent.from_env()
    step_shortly(agent)
    wait_for("go")
    with agent.step(4, 4):
        condition()
    time.sleep(FOREVER)


def rank(name: str) -> None:
    agent = Agent.from_env(rank=name)
    step_shortly(agent)
    wait_for("go")
    if name == "1":
        time.sleep(FOREVER)
    with agent.step(4, 4):
        time.sleep(FOREVER)


def behind() -> None:
    program = [sys.executable, __file__, "rank"]
    others = [subprocess.Popen([*program, name]) for name in ("0", "1")]
    for other in others:
        other.wait()


def scheduler() -> None:
    agent = Agent.from_env()
    step_shortly(agent)
    wait_for("go")
    agent.work(3)
    agent.loop_turn()
    time.sleep(FOREVER)


CONDITIONS = {each.__name__: each for each in (spin, burn, lock, recv, gil, nap, vfork, read)}


def main() -> None:
    name = sys.argv[1]
    if name == "rank":
        rank(sys.argv[2])
    elif name == "behind":
        behind()
    elif name == "scheduler":
        scheduler()
    else:
        hang(CONDITIONS[name])


if __name__ == "__main__":
    main()
