"""What one scrape shows, as the loop left it: immutable, so that any thread may read it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stepwarden.edge.metrics_tally import Frozen, FrozenHistogram

Values = tuple[float | None, ...]
"""Values in the order of the table; None: not there, and not shown."""


@dataclass(frozen=True, slots=True)
class RankFigures:
    """One rank. `labels` as the text format writes them; `values` as RANK_METRICS."""

    labels: str
    values: Values


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """One worker. `gauges`, `suspicions`, `tallies` as WORKER_GAUGES, SUSPECTED, WORKER_TALLIES.

    `diagnosis`: the one that holds now, "" for none.
    """

    labels: str
    state: str
    gauges: Values
    suspicions: tuple[int, ...]
    tallies: tuple[Frozen, ...]
    ranks: tuple[RankFigures, ...]
    diagnosis: str = ""


@dataclass(frozen=True, slots=True)
class DoubtFigures:
    """How much the supervisor doubts itself, and what its governor does. `held_up` by reason."""

    score: int = 0
    frozen: bool = False
    freezes: int = 0
    tokens: float = 0.0
    held_up: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SupervisorFigures:
    """The supervisor itself. `loop_lag` and `turns` in seconds; `reloaded_at`: Unix time."""

    loop_lag: FrozenHistogram
    turns: FrozenHistogram
    paused: float = 0.0
    trouble: bool = False
    events: Mapping[str, int] = field(default_factory=dict)
    reloads: Mapping[str, int] = field(default_factory=dict)
    reload_ok: bool = True
    reloaded_at: float = 0.0
    doubt: DoubtFigures = DoubtFigures()
    stacks_available: bool = False
    captures: Mapping[str, int] = field(default_factory=dict)
    incidents: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MetricsSnapshot:
    """Everything that the loop knew at one instant, `taken_at` (monotonic seconds)."""

    supervisor: SupervisorFigures
    workers: tuple[WorkerFigures, ...] = ()
    taken_at: float = 0.0
