"""What a scrape of the metrics takes, and what metrics cost the loop.

200 workers with one rank and a real page each, on which prefill and decode steps of four sizes
were run; their meter and the real HTTP server in this process, as in the daemon. The loop's thread
reads the pages and leaves a snapshot before each scrape, so that none is answered from what the one
before had rendered. A client in a process of its own takes the whole page: the time is his, from
before he connects to the last byte. The reference is the same page by prometheus_client's own text
writer. What metrics cost the loop stands beside what it spends on reading the pages anyway.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import results
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from results import Result, median, percentile
from stepwarden.clock import SystemClock
from stepwarden.config.loader import load_text
from stepwarden.core.lifecycle import State
from stepwarden.core.worker import WorkerState
from stepwarden.daemon import gather
from stepwarden.daemon.life import Life
from stepwarden.daemon.meter import Meter
from stepwarden.daemon.unit import Unit
from stepwarden.edge.listen import TcpTarget
from stepwarden.edge.metrics_page import MetricsPage
from stepwarden.edge.metrics_server import MetricsServer
from stepwarden.edge.page_reader import PageReader
from stepwarden_agent.page_file import create_page
from stepwarden_agent.progress import Ring

WORKERS = 200
RANKS = 1000
SCRAPES = 60
TARGET_SECONDS = 0.05

CLIENT = """
import sys, time, urllib.request
for line in sys.stdin:
    began = time.perf_counter()
    with urllib.request.urlopen(sys.argv[1]) as answer:
        size = len(answer.read())
    print(time.perf_counter() - began, size, flush=True)
"""


class Ahead(SystemClock):
    """A clock that can be put ahead."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


class Crew:
    """Workers that live, with pages that this process writes."""

    def __init__(self, scratch: Path, count: int) -> None:
        names = [f"worker-{number:03}" for number in range(count)]
        lines = "".join(f"  {name}: {{command: [x], backend: gpu}}\n" for name in names)
        config = load_text(f"workers:\n{lines}", scratch / "c.yaml", {})
        clock = Ahead()
        now = clock.monotonic()
        self.units: dict[str, Unit] = {}
        self._rings: list[Ring] = []
        self._pages = []
        for name, worker in config.workers.items():
            directory = scratch / name
            directory.mkdir(parents=True)
            made = create_page(str(directory), "0", "idle")
            ring = Ring(lambda: None)
            ring.attach(made.words)
            self._pages.append(made)
            self._rings.append(ring)
            state = WorkerState(name, State.HEALTHY, since=now, incarnation=1, ready_at=now)
            unit = Unit(worker, state)
            reader = PageReader(directory)
            unit.life = Life(name, 1, f"{name}.1.x", directory, reader, spawned_at=now)
            self.units[name] = unit
        self._clock = clock
        self.meter = Meter(self.units, lambda *_: 0, lambda: "", clock, print)
        self.page = MetricsPage(lambda: self.meter.snapshot, lambda: self.meter.turned_at, clock)

    def step(self) -> None:
        """A few steps on each rank."""
        for ring in self._rings:
            for phase, seqs in (("prefill", 1), ("decode", 4), ("decode", 16), ("decode", 64)):
                ring.end(ring.begin(seqs, seqs, phase))
                ring.end(ring.begin(seqs, seqs, phase))

    def look(self) -> tuple[float, float]:
        """Read the pages and leave a snapshot; seconds of CPU that each of the two took."""
        self._clock.ahead += 1.0  # a snapshot is due each second
        now = self._clock.monotonic()
        began = time.thread_time()
        for unit in self.units.values():
            assert unit.life is not None
            gather.read_pages(unit.life, lambda _: True, now)
        read = time.thread_time()
        self.meter.turned(now, now)
        return read - began, time.thread_time() - read

    def close(self) -> None:
        for unit in self.units.values():
            assert unit.life is not None
            unit.life.pages.close()


class _Reference(Collector):
    def __init__(self, page: bytes) -> None:
        self._families = list(text_string_to_metric_families(page.decode()))

    def collect(self) -> object:
        return self._families


def measure(scratch: Path) -> list[Result]:
    crew = Crew(scratch / "a", WORKERS)
    server = MetricsServer([TcpTarget("127.0.0.1", 0)], crew.page, SystemClock())
    server.start()
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, f"http://{server.addresses[0]}/metrics"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert client.stdin is not None
    assert client.stdout is not None
    times = []
    size = 0
    for _ in range(SCRAPES):
        crew.step()
        crew.look()
        client.stdin.write("\n")
        client.stdin.flush()
        words = client.stdout.readline().split()
        times.append(float(words[0]))
        size = int(words[1])
    client.stdin.close()
    client.wait(30)
    page = crew.page.render()
    server.shutdown()
    crew.close()
    topic = "metrics"
    lines = page.count(b"\n")
    what = f"scrape of {WORKERS} workers: {lines} lines, {size / 1e6:.1f} MB"
    worst = percentile(times, 95)
    mark = results.ratio(topic, what, 1000 * median(times), 1000 * TARGET_SECONDS, "ms")
    return [
        mark,
        Result(topic, "the same, 95th percentile", f"{1000 * worst:.3g} ms"),
        Result(topic, "the same page by prometheus_client", f"{1000 * _by_client(page):.3g} ms"),
        _snapshot(scratch),
    ]


def _by_client(page: bytes) -> float:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Reference(page))
    times = []
    for _ in range(5):
        began = time.perf_counter()
        generate_latest(registry)
        times.append(time.perf_counter() - began)
    return median(times)


def _snapshot(scratch: Path) -> Result:
    crew = Crew(scratch / "b", RANKS)
    reads, snapshots = [], []
    for _ in range(10):
        crew.step()
        read, snapshot = crew.look()
        reads.append(read)
        snapshots.append(snapshot)
    crew.close()
    what = f"the loop's CPU for the snapshot of {RANKS} workers that step, once a second"
    share = median(snapshots) / median(reads)
    text = f"{1000 * median(snapshots):.3g} ms ({share:.2f}x of reading their pages)"
    return Result("metrics", what, text)


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory(prefix="sw-") as folder:
        for result in measure(Path(folder)):
            print(result)
