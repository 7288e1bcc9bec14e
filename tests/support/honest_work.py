"""A worker for stories: at each line on the pipe it does honest work, and writes its answer.

`python honest_work.py REQUESTS ANSWERS`: two paths of named pipes. A line of REQUESTS is a number
of seconds of CPU time to burn in one step; ANSWERS gets "started", then one line for each request.
It has an agent in it and ends at the end of REQUESTS.
"""

from __future__ import annotations

import hashlib
import sys
import time
from pathlib import Path

from stepwarden_agent import Agent


def work(seconds: float) -> str:
    """Burn `seconds` of CPU time of this process, however long that takes; returns a digest."""
    end = time.process_time() + seconds
    block = b"honest"
    while time.process_time() < end:
        block = hashlib.sha256(block * 1000).digest()
    return block.hex()


def main(requests: Path, answers: Path) -> None:
    agent = Agent.from_env(rank="0")
    with answers.open("w", encoding="ascii", buffering=1) as replies:
        print("started", file=replies)
        with requests.open(encoding="ascii") as lines:
            for line in lines:
                with agent.step(64, 64, "decode"):
                    answer = work(float(line))
                print(answer, file=replies)
    agent.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
