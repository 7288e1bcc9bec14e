"""How long `run` takes until it serves, and `status` until it has printed."""

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
                asked = [_status(folder) for _ in range(ROUNDS)]
    return [
        ratio("start", f"`run` to ready, median of {ROUNDS}", median(starts), 1.0, "s"),
        ratio("start", f"`status`, median of {ROUNDS}", median(asked), 0.3, "s"),
    ]


def _status(folder: Path) -> float:
    command = [sys.executable, "-m", "stepwarden", "status"]
    command += ["--config", str(folder / "stepwarden.yaml")]
    began = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began
