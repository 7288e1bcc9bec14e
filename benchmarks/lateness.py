"""How late UNHEALTHY comes after a deadline, with 64 ranks.

Steps with a budget of 0.5 s are held open for 0.9 s on random ranks; each first suspicion of a
rank tells by how much its deadline had passed when the loop judged it.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from results import Result, median, percentile, ratio
from servers import HERE, daemon, stub
from stepwarden_proto.v1 import supervisor_pb2

TOPIC = "lateness of UNHEALTHY, 64 ranks"
WORKERS, RANKS = 4, 16
SECONDS = 40.0

BODY = """backends:
  cpu: {step: {base: 500ms, per_seq: 0, max: 30m}}
defaults:
  startup: {first_step: 100ms}
  retry: {window: 30s}
workers:
"""


def measure(scratch: Path) -> list[Result]:
    command = f'["{sys.executable}", "{HERE}/many_ranks.py", "{RANKS}", freeze]'
    workers = "".join(f"  w{n}: {{backend: cpu, command: {command}}}\n" for n in range(WORKERS))
    with daemon(scratch, BODY + workers):
        time.sleep(SECONDS)
        found = late(scratch)
    return [
        ratio(TOPIC, f"p99 of {len(found)}", 1e3 * percentile(found, 99), 50, "ms"),
        Result(TOPIC, "median", f"{1e3 * median(found):.2f} ms"),
    ]


def late(scratch: Path) -> list[float]:
    """By how many seconds each step's deadline had passed when its suspicion was opened."""
    request = supervisor_pb2.WatchEventsRequest(limit=100_000)
    events = stub(scratch).WatchEvents(request, timeout=120)  # type: ignore[attr-defined]
    found = []
    for event in events:
        opened = event.kind == "suspicion" or event.to_state == "UNHEALTHY"
        if opened and event.cause == "step":
            found.append(json.loads(event.data_json)["late_by"])
    return found
