"""A worker with many ranks in one process: real agents, real pages, real streams.

many_ranks.py COUNT [freeze]     freeze: each rank now and then holds a step open for a while
"""

from __future__ import annotations

import random
import sys
import time

from stepwarden_agent import Agent

HOLD_SECONDS = 0.9


def main() -> None:
    count = int(sys.argv[1])
    agents = [Agent.from_env(rank=str(number)) for number in range(count)]
    if sys.argv[2:] != ["freeze"]:
        while True:
            time.sleep(3600)
    draw = random.Random(1)
    held: dict[int, tuple[int, float]] = {}
    while True:
        now = time.monotonic()
        for number, (handle, until) in list(held.items()):
            if now >= until:
                agents[number].end(handle)
                del held[number]
        number = draw.randrange(count)
        if number not in held:
            held[number] = (agents[number].begin(1, 1, "decode"), now + HOLD_SECONDS)
        time.sleep(draw.uniform(0.05, 0.25))


if __name__ == "__main__":
    main()
