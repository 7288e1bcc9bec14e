"""How long a reload of 200 workers takes, and how long beats wait meanwhile.

199 workers with a process each, and one whose ten ranks beat ten times a second and time each
answer. A default that all inherit is changed again and again (each reload adjusts 200 workers);
then 20 workers get another command (they restart). The reload is timed as its caller sees it: the
file read, checked, compared and applied. The slowest answer of a time without reloads stands beside
those of the reloads: a shared machine lets answers wait for its own reasons.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from results import Result, median, ratio
from servers import HERE, daemon, stub, until
from stepwarden_proto.v1 import supervisor_pb2 as pb

TOPIC = "reload of 200 workers"
WORKERS, ROUNDS, RESTARTED = 200, 15, 20
QUIET_SECONDS = 10.0


def measure(scratch: Path) -> list[Result]:
    beats = scratch / "beats"
    with daemon(scratch, _body(beats, 30)):
        admin = stub(scratch)
        until(lambda: _healthy(admin) == WORKERS, 120, "workers not HEALTHY")
        time.sleep(QUIET_SECONDS)
        times, spans = [], []
        for number in range(ROUNDS):
            times.append(_reload(scratch, admin, _body(beats, 31 + number), spans))
        restarts = _reload(scratch, admin, _body(beats, 31 + number, changed=RESTARTED), spans)
        time.sleep(1.5)
        delays = [tuple(map(float, line.split())) for line in beats.read_text().splitlines()]
    during = _slowest(delays, spans[:-1], 0.5)
    restarting = _slowest(delays, spans[-1:], 1.0)
    first = min(begin for begin, _ in spans)
    usual = _slowest(delays, [(first - QUIET_SECONDS, first - 1.0)], 0.0)
    return [
        ratio(TOPIC, f"200 adjusted, worst of {ROUNDS}", max(times), 1.0, "s"),
        Result(TOPIC, "200 adjusted, median", f"{median(times):.3f} s"),
        ratio(TOPIC, f"{RESTARTED} with another command", restarts, 1.0, "s"),
        ratio(TOPIC, "slowest answer to a beat meanwhile", during, 100, "ms"),
        ratio(TOPIC, f"the same where {RESTARTED} restart", restarting, 100, "ms"),
        Result(TOPIC, f"slowest in {QUIET_SECONDS:g} s without a reload", f"{usual:.0f} ms"),
    ]


def _slowest(
    delays: list[tuple[float, ...]], spans: list[tuple[float, float]], after: float
) -> float:
    """Milliseconds; of beats sent in these times, or `after` so many seconds."""
    return 1e3 * max(
        took
        for sent, took in delays
        if any(begin - 0.1 <= sent <= end + after for begin, end in spans)
    )


def _body(beats: Path, window: int, changed: int = 0) -> str:
    """`window`: of all; `changed`: so many workers have another command."""
    lines = [
        f"  reload: {{watch: false}}\ndefaults: {{retry: {{window: {window}s}}}}\nworkers:",
        f'  beats: {{command: ["{sys.executable}", "{HERE}/answered_beats.py", "{beats}"]}}',
    ]
    for number in range(WORKERS - 1):
        seconds = 3600 + (number < changed)
        lines.append(f"  w{number}: {{agent: none, command: [sleep, '{seconds}']}}")
    return "\n".join(lines) + "\n"


def _reload(scratch: Path, admin: object, body: str, spans: list[tuple[float, float]]) -> float:
    file = scratch / "stepwarden.yaml"
    head = file.read_text().split("  reload:")[0]
    file.write_text(head + body)
    begin = time.monotonic()
    answer = admin.Reload(pb.ReloadRequest(), timeout=60)  # type: ignore[attr-defined]
    end = time.monotonic()
    assert answer.applied, answer
    assert len(answer.changes) in (WORKERS, RESTARTED), answer
    spans.append((begin, end))
    time.sleep(0.3)
    return end - begin


def _healthy(admin: object) -> int:
    answer = admin.ListWorkers(pb.ListWorkersRequest(), timeout=10)  # type: ignore[attr-defined]
    return sum(worker.state == "HEALTHY" for worker in answer.workers)
