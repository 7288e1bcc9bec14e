"""CPU of an agent that beats at 1 Hz to a real daemon, and of what it costs the worker in all.

The worker does nothing but hold an agent, so all CPU time of its process after the start is the
agent's: beat thread, link thread and gRPC's own threads.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from results import Result, ratio
from servers import HERE, cpu_seconds, daemon, stub, until
from stepwarden_proto.v1 import supervisor_pb2

TOPIC = "agent at 1 Hz"
SECONDS = 60.0
SETTLE_SECONDS = 5.0


def measure(scratch: Path) -> list[Result]:
    command = f'["{sys.executable}", "{HERE}/many_ranks.py", "1"]'
    with daemon(scratch, f"workers:\n  w: {{backend: cpu, command: {command}}}\n"):
        service = stub(scratch)
        until(lambda: _pid(service) > 0, 30, "the rank did not attach")
        time.sleep(SETTLE_SECONDS)
        pid = _pid(service)
        before = cpu_seconds(pid)
        time.sleep(SECONDS)
        used = cpu_seconds(pid) - before
    return [ratio(TOPIC, "CPU of a core", 100 * used / SECONDS, 0.1, "%")]


def _pid(service: object) -> int:
    answer = service.ListWorkers(supervisor_pb2.ListWorkersRequest(), timeout=5)  # type: ignore[attr-defined]
    return next((rank.pid for worker in answer.workers for rank in worker.ranks), 0)
