"""A worker with many ranks in one process: real agents, real pages, real streams.

many_ranks.py COUNT [freeze [PAUSE HOLD]]     freeze: each PAUSE seconds or so some rank holds a
                                              step open for HOLD seconds; 0.15 and 0.9 where
                                              nothing is said
many_ranks.py COUNT step                      each rank steps 20 times a second

The agents begin spread over a second, as those of processes of their own would.
"""

from __future__ import annotations

import random
import sys
import time

from stepwarden_agent import Agent

STEPS_PER_SECOND = 20


def main() -> None:
    count, mode = int(sys.argv[1]), (sys.argv[2:] or ["idle"])[0]
    agents = []
    for number in range(count):
        agents.append(Agent.from_env(rank=str(number)))
        time.sleep(1 / count)
    if mode == "freeze":
        pause, hold = map(float, sys.argv[3:] or (0.15, 0.9))
        freeze(agents, pause, hold)
    while mode == "step":
        step(agents)
    while True:
        time.sleep(3600)


def freeze(agents: list[Agent], pause: float, hold: float) -> None:
    draw = random.Random()
    held: dict[int, tuple[int, float]] = {}
    while True:
        now = time.monotonic()
        for number, (handle, until) in list(held.items()):
            if now >= until:
                agents[number].end(handle)
                del held[number]
        number = draw.randrange(len(agents))
        if number not in held:
            held[number] = (agents[number].begin(1, 1, "decode"), now + hold)
        time.sleep(draw.uniform(pause / 3, pause * 5 / 3))


def step(agents: list[Agent]) -> None:
    """One step of each; a step is open all the time, as on a busy engine."""
    handles = [agent.begin(8, 8, "decode") for agent in agents]
    time.sleep(1 / STEPS_PER_SECOND)
    for agent, handle in zip(agents, handles, strict=True):
        agent.end(handle)


if __name__ == "__main__":
    main()
