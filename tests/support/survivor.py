"""The workers of the survival story: one program, run by its path, in one of several roles.

    survivor.py plain | tree | shell | probe | printer | crasher

STORY_DIR names the directory of its worker. Each process of a life appends one line to `roll`
there: incarnation, pid, start ticks, role. The first of a life takes an exclusive flock on `lock`
and hands the descriptor down to all of its tree, so it is held as long as one of them lives; who
finds it held writes so into `overlap`. Signals that can be caught go to `signals`, then it ends.
It imports the agent only in roles that have one: the others start quickly.
"""

from __future__ import annotations

import fcntl
import os
import random
import signal
import socket
import sys
import time
from types import FrameType

DIRECTORY = os.environ["STORY_DIR"]
LIFE = os.environ.get("STEPWARDEN_INCARNATION", "none")
LOGGED = ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGCONT")


def note(name: str, *words: object) -> None:
    """Append a line to a file of the worker's directory, whole or not at all."""
    line = " ".join(map(str, words)) + "\n"
    descriptor = os.open(f"{DIRECTORY}/{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def start_ticks() -> int:
    """When this process began."""
    with open("/proc/self/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])


def sign_in(role: str) -> None:
    """Write this process down."""
    note("roll", LIFE, os.getpid(), start_ticks(), role)


def take_lock() -> None:
    """The first process of a life: nobody of an earlier one may be left."""
    descriptor = os.open(f"{DIRECTORY}/lock", os.O_RDWR | os.O_CREAT, 0o600)
    os.set_inheritable(descriptor, True)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        note("overlap", LIFE, os.getpid(), "began while an earlier life was there")


def log_signals() -> None:
    def logged(number: int, _frame: FrameType | None) -> None:
        note("signals", LIFE, os.getpid(), signal.Signals(number).name)
        if number != signal.SIGCONT:
            os._exit(0)

    for name in LOGGED:
        signal.signal(getattr(signal, name), logged)


def steps() -> None:
    """An agent that steps for ever, ten times a second."""
    from stepwarden_agent import Agent

    agent = Agent.from_env()
    while True:
        with agent.step(4, 4, phase="decode"):
            time.sleep(0.08)
        time.sleep(0.02)


def sleep_for_ever() -> None:
    while True:
        signal.pause()


def plain() -> None:
    steps()


def tree() -> None:
    """Main waits; a child in a session of its own; a grandchild with the agent; a lost one."""
    if os.fork() == 0:
        os.setsid()
        sign_in("child")
        if os.fork() == 0:
            sign_in("grandchild")
            steps()
        sleep_for_ever()
    middle = os.fork()
    if middle == 0:
        if os.fork() == 0:
            os.setsid()
            sign_in("forked-twice")
            sleep_for_ever()
        os._exit(0)
    os.waitpid(middle, 0)
    sleep_for_ever()


def shell() -> None:
    """Behind a shell and in front of a tee."""
    while True:
        print(f"{LIFE} {time.monotonic():.3f}", flush=True)
        time.sleep(0.5)


def probe() -> None:
    """Listens where the ready probe asks."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", int(os.environ["STORY_PORT"])))
    server.listen(16)
    while True:
        connection, _ = server.accept()
        connection.close()


def printer() -> None:
    """Bytes of any kind, all the time; a print that breaks would end it."""
    odd = random.Random(1)
    while True:
        os.write(1, odd.randbytes(odd.randrange(1, 3000)) + b"\xff\x00\r\n"[: odd.randrange(5)])
        time.sleep(0.02)


def crasher() -> None:
    """Ends by itself after a while."""
    time.sleep(random.uniform(0.2, 2.5))
    os._exit(3)


ROLES = {
    "plain": plain,
    "tree": tree,
    "shell": shell,
    "probe": probe,
    "printer": printer,
    "crasher": crasher,
}


def main() -> None:
    log_signals()
    take_lock()
    sign_in("main")
    ROLES[sys.argv[1]]()


if __name__ == "__main__":
    main()
