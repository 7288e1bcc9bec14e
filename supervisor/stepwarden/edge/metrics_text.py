"""The part of the page that grows with the workers, in the Prometheus text format 0.0.4.

Written by hand because of its size: prometheus_client takes 8 microseconds for each line, and 200
workers have some 20 000 of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stepwarden.edge.metrics_snapshot import Values, WorkerFigures
from stepwarden.edge.metrics_table import (
    RANK_METRICS,
    STATES,
    SUSPECTED,
    WORKER_DIAGNOSIS,
    WORKER_GAUGES,
    WORKER_STATE,
    WORKER_SUSPICIONS,
    WORKER_TALLIES,
    Metric,
)


def workers_text(workers: tuple[WorkerFigures, ...]) -> str:
    """All families of workers and ranks."""
    return "".join(_pieces(workers))


def _pieces(workers: tuple[WorkerFigures, ...]) -> Iterator[str]:
    if not workers:
        return
    yield head(WORKER_STATE)
    yield from (_state_lines(worker) for worker in workers)
    yield head(WORKER_SUSPICIONS)
    yield from (_suspicion_lines(worker) for worker in workers)
    yield head(WORKER_DIAGNOSIS)
    yield from (_diagnosis_line(worker) for worker in workers)
    yield from _families(WORKER_GAUGES, [(each.labels, each.gauges) for each in workers])
    for position, metric in enumerate(WORKER_TALLIES):
        yield head(metric)
        yield from (each.tallies[position].text(metric.name) for each in workers)
    ranks = [(rank.labels, rank.values) for each in workers for rank in each.ranks]
    yield from _families(RANK_METRICS, ranks)


def head(metric: Metric) -> str:
    """What stands before the lines of a family."""
    return f"# HELP {metric.name} {metric.help}\n# TYPE {metric.name} {metric.kind}\n"


def _families(metrics: Iterable[Metric], rows: list[tuple[str, Values]]) -> Iterator[str]:
    for position, metric in enumerate(metrics):
        yield head(metric)
        name = metric.name
        for labels, values in rows:
            value = values[position]
            if value is not None:
                yield f"{name}{{{labels}}} {value}\n"


def _state_lines(worker: WorkerFigures) -> str:
    before = f"{WORKER_STATE.name}{{{worker.labels},state="
    return "".join([f'{before}"{state}"}} {int(state == worker.state)}\n' for state in STATES])


def _diagnosis_line(worker: WorkerFigures) -> str:
    if not worker.diagnosis:
        return ""
    return f'{WORKER_DIAGNOSIS.name}{{{worker.labels},diagnosis="{worker.diagnosis}"}} 1\n'


def _suspicion_lines(worker: WorkerFigures) -> str:
    before = f"{WORKER_SUSPICIONS.name}{{{worker.labels},cause="
    pairs = zip(SUSPECTED, worker.suspicions, strict=True)
    return "".join([f'{before}"{cause}"}} {count}\n' for cause, count in pairs])
