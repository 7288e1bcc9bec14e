"""A thousand ranks at 1 Hz: CPU beside a bare grpc.aio server, memory, lateness of verdicts.

Eight workers of 125 real agents each (pages with real locks, a stream each), whose beats are spread
over the second. The bare server takes the same beats of the same processes, with gRPC's defaults
and with the supervisor's channel options. The two are measured in turns, and each pair gives one
ratio: the middle one counts, and the others show how far the machine lets them spread. Lateness:
with 1 s for a step, some ten a second freeze for 2.5 s on random ranks; each first suspicion tells
by how much its deadline had passed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import lateness
from daemon_cost import agents, bare_server
from results import Result, median, percentile, ratio
from servers import HERE, cpu_seconds, daemon, rss_megabytes, stub, until
from stepwarden_proto.v1 import supervisor_pb2

TOPIC = "1000 ranks at 1 Hz"
WORKERS, RANKS = 8, 125
PAIRS = 3
SECONDS = 20.0
SETTLE_SECONDS = 12.0
"""Until the trees are no longer young, and looked at less often."""

FREEZE_SECONDS = 40.0
FREEZE = ("freeze", "0.8", "2.5")

BUDGETS = """backends:
  cpu: {step: {base: 1s, per_seq: 0, max: 30m}}
defaults:
  startup: {first_step: 100ms}
"""
METRICS = '  metrics: {listen: "127.0.0.1:0"}\n'


def measure(scratch: Path) -> list[Result]:
    pairs = [_pair(scratch / f"pair{number}") for number in range(PAIRS)]
    ratios = [pair.ours / pair.bare for pair in pairs]
    bare, ours = median([pair.bare for pair in pairs]), median([pair.ours for pair in pairs])
    tuned = _bare(scratch / "tuned", "options")
    metered, metered_memory = _daemon(scratch / "metered", METRICS)
    stepping, stepping_memory = _daemon(scratch / "stepping", METRICS, "step")
    late = _late(scratch / "late")
    beside = "CPU beside a bare grpc.aio server that takes the same beats"
    most = max(*(pair.memory for pair in pairs), metered_memory, stepping_memory)
    return [
        ratio(TOPIC, f"{beside}, median of {PAIRS} pairs", median(ratios), 1.5),
        Result(TOPIC, "least and most of them", f"{min(ratios):.2f}x to {max(ratios):.2f}x"),
        Result(TOPIC, "the same with metrics", f"{metered / bare:.2f}x"),
        Result(TOPIC, "and every rank stepping 20 times a second", f"{stepping / bare:.2f}x"),
        Result(TOPIC, "CPU of the daemon, median", _share(ours)),
        Result(TOPIC, "CPU of the bare server, median", _share(bare)),
        Result(TOPIC, "CPU of the bare server with our channel options", _share(tuned)),
        ratio(
            TOPIC,
            f"lateness of UNHEALTHY, p99 of {len(late)}",
            _ms(percentile(late, 99)),
            250,
            "ms",
        ),
        Result(TOPIC, "lateness of UNHEALTHY, median", f"{_ms(median(late)):.2f} ms"),
        ratio(TOPIC, "resident memory, the largest of these", most, 200, "MB"),
    ]


@dataclass(frozen=True)
class Pair:
    """CPU seconds of both over the same length of time, one after the other."""

    bare: float
    ours: float
    memory: float


def _pair(scratch: Path) -> Pair:
    scratch.mkdir()
    bare = _bare(scratch / "bare")
    ours, memory = _daemon(scratch / "daemon")
    return Pair(bare, ours, memory)


def _daemon(scratch: Path, settings: str = "", *mode: str) -> tuple[float, float]:
    """CPU seconds and resident megabytes."""
    with _crowd(scratch, settings, "", *mode) as pid:
        time.sleep(SETTLE_SECONDS)
        before = cpu_seconds(pid)
        time.sleep(SECONDS)
        return cpu_seconds(pid) - before, rss_megabytes(pid)


def _late(scratch: Path) -> list[float]:
    with _crowd(scratch, "", BUDGETS, *FREEZE):
        time.sleep(FREEZE_SECONDS)
        return lateness.late(scratch)


@contextmanager
def _crowd(scratch: Path, settings: str, body: str, *mode: str) -> Iterator[int]:
    """A daemon with all ranks attached; gives its pid."""
    scratch.mkdir()
    words = [sys.executable, f"{HERE}/many_ranks.py", str(RANKS), *mode]
    command = ", ".join(f'"{word}"' for word in words)
    workers = "".join(f"  w{n}: {{backend: cpu, command: [{command}]}}\n" for n in range(WORKERS))
    with daemon(scratch, f"{settings}{body}workers:\n{workers}") as process:
        service = stub(scratch)
        until(lambda: _attached(service), 120, "not all ranks attached")
        yield process.pid


def _attached(service: object) -> bool:
    time.sleep(1.0)  # the list of a thousand ranks costs the daemon some of its time
    answer = service.ListWorkers(supervisor_pb2.ListWorkersRequest(), timeout=30)  # type: ignore[attr-defined]
    return sum(len(worker.ranks) for worker in answer.workers) == WORKERS * RANKS


def _bare(scratch: Path, *options: str) -> float:
    scratch.mkdir()
    with bare_server(scratch, *options) as server, agents(scratch, WORKERS, RANKS):
        time.sleep(SETTLE_SECONDS)
        before = cpu_seconds(server)
        time.sleep(SECONDS)
        return cpu_seconds(server) - before


def _share(seconds: float) -> str:
    return f"{100 * seconds / SECONDS:.1f} % of a core"


def _ms(seconds: float) -> float:
    return 1e3 * seconds
