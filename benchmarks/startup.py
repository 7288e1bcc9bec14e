"""How long `run` takes until it serves, and `status` and `--help` until they have printed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from results import Result, median, ratio
from servers import daemon

ROUNDS = 9
BODY = "workers:\n  w: {agent: none, command: [/bin/sleep, '100000']}\n"


def measure(scratch: Path) -> list[Result]:
    starts = []
    for number in range(ROUNDS):
        folder = scratch / str(number)
        folder.mkdir()
        began = time.monotonic()
        with daemon(folder, BODY):
            starts.append(time.monotonic() - began)
            if number == ROUNDS - 1:
                config = str(folder / "stepwarden.yaml")
                asked = [_command("status", "--config", config) for _ in range(ROUNDS)]
                helped = [_command("--help") for _ in range(ROUNDS)]
    return [
        ratio("start", f"`run` to ready, median of {ROUNDS}", median(starts), 1.0, "s"),
        ratio("start", f"`status`, median of {ROUNDS}", median(asked), 0.25, "s"),
        ratio("start", f"`--help`, median of {ROUNDS}", median(helped), 0.15, "s"),
    ]


def _command(*words: str) -> float:
    command = [sys.executable, "-m", "stepwarden", *words]
    began = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began
