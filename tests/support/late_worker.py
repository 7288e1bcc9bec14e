"""A worker whose one step never ends: ``late_worker.py lock`` hangs, ``loop`` goes on computing.

With further arguments, as a command line has them, it does nothing but print them. SAYS in its
environment is printed too.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from stepwarden_agent import Agent

FOREVER = 1e6


def take_the_lock_twice() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def first_half(total: int) -> int:
    for number in range(200_000):
        total += number * number
    return total


def second_half(total: int) -> int:
    begin = time.perf_counter()
    while time.perf_counter() < begin + 0.05:
        total ^= total >> 3
    return total


def compute_for_ever() -> None:
    total = 0
    while True:
        total = first_half(total)
        total = second_half(total)


def main() -> None:
    print("says", os.environ.get("SAYS", ""), *sys.argv[2:], flush=True)
    agent = Agent.from_env(phase="idle")
    time.sleep(0.5)
    with agent.step(1, 1, phase="decode"):
        {"lock": take_the_lock_twice, "loop": compute_for_ever}[sys.argv[1]]()


if __name__ == "__main__":
    main()
