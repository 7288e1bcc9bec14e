"""Feeds the metrics: counts events as they come, and leaves a snapshot behind once a second.

All of it runs in the loop's thread. Whoever scrapes reads `snapshot` and `turned_at` and asks
nothing, so a scrape neither waits for the loop nor holds it up, and works when the loop is dead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline, elapsed
from stepwarden.core.event import Event, Kind
from stepwarden.core.turn import HEARTBEAT_SECONDS
from stepwarden.daemon.incident_counts import IncidentCounts
from stepwarden.daemon.unit import Unit
from stepwarden.daemon.worker_meter import WorkerMeter
from stepwarden.edge.metrics_snapshot import DoubtFigures, MetricsSnapshot, SupervisorFigures
from stepwarden.edge.metrics_table import LAG_SECONDS, TURN_SECONDS
from stepwarden.edge.metrics_tally import Histogram
from stepwarden.edge.reload_views import ReloadCounts

RestartsUsed = Callable[[Unit, float], int]
"""Deaths of a worker (or of its group) that count against its limit now."""


class Meter:
    """Counts for all workers of `units`, and forgets those that are not in it any more."""

    def __init__(
        self,
        units: Mapping[str, Unit],
        restarts_used: RestartsUsed,
        trouble: Callable[[], str],
        clock: Clock,
        note: Callable[[Event], None],
    ) -> None:
        self._units = units
        self._restarts_used = restarts_used
        self._trouble = trouble
        self._clock = clock
        self._note = note
        self._doubt: Callable[[], DoubtFigures] = DoubtFigures
        self._meters: dict[str, WorkerMeter] = {}
        self._lag, self._turns = Histogram(LAG_SECONDS), Histogram(TURN_SECONDS)
        self._events = {kind.value: 0 for kind in Kind}
        self._reloads = ReloadCounts(clock.wall().timestamp())
        self._proof = IncidentCounts()
        self._paused = 0.0
        self._faulty = False
        self.faults = 0
        self.turned_at = clock.monotonic()
        self._due = Deadline(self.turned_at)
        self.snapshot = MetricsSnapshot(self._supervisor(), taken_at=self.turned_at)

    def event(self, event: Event) -> None:
        """Count one event."""
        self._events[event.kind.value] += 1
        if event.kind is Kind.SUPERVISOR_PAUSED:
            seconds = event.data.get("seconds")
            self._paused += seconds if isinstance(seconds, int | float) else 0.0
        if event.worker in self._units:
            self._meter(event.worker).event(event)

    def follow_reloads(self, counts: ReloadCounts) -> None:
        """Show these from now on; they are read once a second."""
        self._reloads = counts

    def follow_doubt(self, doubt: Callable[[], DoubtFigures]) -> None:
        """Show these from now on; they are read once a second."""
        self._doubt = doubt

    def follow_incidents(self, counts: IncidentCounts) -> None:
        """The same of these."""
        self._proof = counts

    def turned(self, due: float, began: float) -> None:
        """The loop has turned: it was `due` then, and `began` to look then.

        Makes the snapshot where the last one is a second old. Never raises: figures for people must
        not end supervision.
        """
        now = self._clock.monotonic()
        self.turned_at = now
        self._turns.observe(elapsed(began, now))
        if Deadline(due).passed(began):  # it was not woken up before its time
            self._lag.observe(elapsed(due, began))
        if not self._due.passed(now):
            return
        # Half a turn early is soon enough: the turns themselves are a second apart.
        self._due = Deadline.after(now, HEARTBEAT_SECONDS / 2)
        try:
            self.snapshot = self._taken(now)
            self._faulty = False
        except Exception as error:
            self.faults += 1  # the next second tries again
            if not self._faulty:
                text = f"a fault of ours in the metrics: {type(error).__name__}: {error}"
                self._note(Event(Kind.DAEMON, text))
            self._faulty = True

    def _taken(self, now: float) -> MetricsSnapshot:
        for name in [name for name in self._meters if name not in self._units]:
            del self._meters[name]
        workers = tuple(
            self._meter(name).figures(unit, self._restarts_used(unit, now), now)
            for name, unit in self._units.items()
        )
        return MetricsSnapshot(self._supervisor(), workers, now)

    def _meter(self, name: str) -> WorkerMeter:
        meter = self._meters.get(name)
        if meter is None:
            meter = self._meters[name] = WorkerMeter(name)
        return meter

    def _supervisor(self) -> SupervisorFigures:
        return SupervisorFigures(
            loop_lag=self._lag.freeze(),
            turns=self._turns.freeze(),
            paused=self._paused,
            trouble=bool(self._trouble()),
            events=dict(self._events),
            reloads={"applied": self._reloads.succeeded, "failed": self._reloads.failed},
            reload_ok=not self._reloads.last_failed,
            reloaded_at=self._reloads.succeeded_at,
            doubt=self._doubt(),
            stacks_available=self._proof.stacks_available,
            captures={"seen": self._proof.captured, "failed": self._proof.not_captured},
            incidents={"kept": self._proof.kept, "failed": self._proof.not_kept},
        )
