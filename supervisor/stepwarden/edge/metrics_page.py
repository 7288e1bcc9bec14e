"""The page of metrics: of the supervisor itself by prometheus_client, of the workers by hand."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from stepwarden import __version__
from stepwarden.clock import Clock
from stepwarden.core.deadline import elapsed
from stepwarden.edge.metrics_snapshot import MetricsSnapshot
from stepwarden.edge.metrics_table import COUNTER, SUPERVISOR_METRICS
from stepwarden.edge.metrics_tally import FrozenHistogram
from stepwarden.edge.metrics_text import workers_text

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_Value = float | dict[str, float] | FrozenHistogram


class MetricsPage:
    """Renders the newest snapshot. `turned_at`: when the loop last turned, in monotonic seconds.

    `faults`: how often no snapshot could be made.

    For one thread: that of the server.
    """

    def __init__(
        self,
        snapshot: Callable[[], MetricsSnapshot],
        turned_at: Callable[[], float],
        clock: Clock,
        faults: Callable[[], int] = lambda: 0,
    ) -> None:
        self._snapshot = snapshot
        self._turned_at = turned_at
        self._clock = clock
        self._faults = faults
        self.scrapes = 0
        self.dropped = 0
        self._shown: MetricsSnapshot | None = None
        self._text = b""
        self._registry = CollectorRegistry(auto_describe=False)
        ProcessCollector(registry=self._registry)
        self._registry.register(_Own(self._values))

    def render(self) -> bytes:
        """The page as it is now."""
        self.scrapes += 1
        snapshot = self._snapshot()
        if snapshot is not self._shown:  # several who scrape share what was rendered
            self._text = workers_text(snapshot.workers).encode()
            self._shown = snapshot
        return generate_latest(self._registry) + self._text

    def _values(self) -> tuple[_Value, ...]:
        """In the order of SUPERVISOR_METRICS."""
        snapshot = self._snapshot()
        own = snapshot.supervisor
        return (
            {__version__: 1},
            elapsed(self._turned_at(), self._clock.monotonic()),
            own.loop_lag,
            own.turns,
            own.paused,
            len(snapshot.workers),
            threading.active_count(),
            int(own.trouble),
            own.doubt.score,
            int(own.doubt.frozen),
            own.doubt.freezes,
            own.doubt.tokens,
            dict(own.doubt.held_up),
            dict(own.events),
            dict(own.reloads),
            int(own.reload_ok),
            own.reloaded_at,
            elapsed(snapshot.taken_at, self._clock.monotonic()),
            self._faults(),
            self.scrapes,
            self.dropped,
            int(own.stacks_available),
            dict(own.captures),
            dict(own.incidents),
        )


class _Own(Collector):
    """The supervisor's families, made anew for each scrape."""

    def __init__(self, values: Callable[[], tuple[_Value, ...]]) -> None:
        self._values = values

    def collect(self) -> Iterator[Metric]:
        """What the client asks for."""
        for metric, value in zip(SUPERVISOR_METRICS, self._values(), strict=True):
            if isinstance(value, FrozenHistogram):
                buckets = [(le, float(count)) for le, count in value.cumulative()]
                histogram = HistogramMetricFamily(metric.name, metric.help, labels=())
                histogram.add_metric((), buckets, value.total)
                yield histogram
                continue
            kind = CounterMetricFamily if metric.kind == COUNTER else GaugeMetricFamily
            family = kind(metric.name, metric.help, labels=metric.labels)
            rows = value.items() if isinstance(value, dict) else [("", value)]
            for label, number in rows:
                family.add_metric([label] if metric.labels else [], number)
            yield family
