"""From the death of a worker to the exec of its successor, its tree confirmed gone; delay 0.

The worker is ended by SIGKILL; the time runs until the daemon's event says that the new pid runs.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

from results import Result, median, percentile, ratio
from servers import daemon, stub
from stepwarden_proto.v1 import supervisor_pb2

TOPIC = "crash to new exec (spawn runner)"
ROUNDS = 60

BODY = """defaults:
  restart: {delay: 0, limit: 1000, within: 1h}
workers:
  w: {agent: none, command: [/bin/sleep, "100000"]}
"""


def measure(scratch: Path) -> list[Result]:
    with daemon(scratch, BODY):
        times = _times(scratch)
    return [
        ratio(TOPIC, f"median of {len(times)}", 1e3 * median(times), 25, "ms"),
        Result(TOPIC, "p90", f"{1e3 * percentile(times, 90):.1f} ms"),
    ]


def _times(scratch: Path) -> list[float]:
    request = supervisor_pb2.WatchEventsRequest(follow=True)
    call = stub(scratch).WatchEvents(request)  # type: ignore[attr-defined]
    # A stuck stream must not hold up the whole run.
    timer = threading.Timer(120, call.cancel)
    timer.daemon = True
    timer.start()
    times: list[float] = []
    killed: float | None = None
    for event in call:
        if event.kind != "started":
            continue
        if killed is not None:
            times.append(event.monotonic - killed)
        if len(times) == ROUNDS:
            call.cancel()
            break
        time.sleep(0.2)  # lets the spare launcher warm up, as between two real crashes
        killed = time.monotonic()
        os.kill(int(event.sentence.split()[1]), signal.SIGKILL)
    return times
