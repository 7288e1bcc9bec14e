"""Report: events to journal, log and followers; health and watchdog with each turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline
from stepwarden.core.event import Event, Kind
from stepwarden.core.lifecycle import State
from stepwarden.core.ready_rule import ReadyRule, Standing
from stepwarden.core.sentences import seconds
from stepwarden.daemon.unit import Unit
from stepwarden.edge.health_service import HealthServer
from stepwarden.edge.health_table import READY, HealthSnapshot, worker_name
from stepwarden.edge.journal import Journal
from stepwarden.edge.systemd import Notifier
from stepwarden.edge.views import RecordedEvent
from stepwarden.naming import counted

WARNINGS = frozenset(
    {
        Kind.REFUSED,
        Kind.AGENT_SILENT,
        Kind.OVER_ROWS,
        Kind.LEFT_OPEN,
        Kind.RELOAD_FAILED,
        Kind.GOVERNOR,
        Kind.SHADOW_DEATH,
    }
)
"""Kinds of events that are warnings in the log, whatever state they leave the worker in."""

LOUD = frozenset({State.UNHEALTHY, State.DEAD, State.FAILED})
"""Arriving in one of these is a warning in the log; FAILED is an error."""


FAULT_SECONDS = 60.0


class Reporter:
    """Tells everybody. Nothing in here may raise into the loop or wait."""

    def __init__(
        self,
        journal: Journal,
        health: HealthServer,
        notifier: Notifier,
        clock: Clock,
        log: Any,
    ) -> None:
        self._journal = journal
        self._health = health
        self._notifier = notifier
        self._clock = clock
        self._log = log
        self._units: Mapping[str, Unit] = {}
        self._followers: Callable[[RecordedEvent], None] | None = None
        self._serving: Mapping[str, bool] = {}
        self._ready = ReadyRule()
        self._stale = True
        self._said_trouble = ""
        self._troubles: list[Callable[[], str]] = [lambda: journal.trouble]
        self._faults: dict[str, tuple[str, Deadline]] = {}
        self._change = asyncio.Event()
        self.turned_at = clock.monotonic()

    def attach(self, units: Mapping[str, Unit], followers: Callable[[RecordedEvent], None]) -> None:
        """Give it the workers, and who follows events."""
        self._units = units
        self._followers = followers
        self._stale = True

    @property
    def trouble(self) -> str:
        """What is wrong with this daemon itself now, in words for its operator; "" for nothing."""
        return "; ".join(text for text in (ask() for ask in self._troubles) if text)

    def ask_for_trouble(self, ask: Callable[[], str]) -> None:
        """Show from now on what `ask` answers beside the other troubles; "": all is well there."""
        self._troubles.append(ask)

    def judge_ready_by(self, rule: ReadyRule) -> None:
        """When `ready` is SERVING, from the next turn on."""
        self._ready = rule
        self._stale = True

    def use_log(self, log: Any) -> None:
        """Log from now on as a new configuration says."""
        self._log = log

    def note(self, event: Event) -> None:
        """One event that no turn brought forth."""
        self.events([event], self._clock.monotonic())

    def events(self, events: Iterable[Event], now: float) -> None:
        """Write events down, everywhere."""
        for event in events:
            recorded = self._journal.append(event, now, self._clock.wall())
            self._log_event(event)
            if self._followers is not None:
                self._followers(recorded)

    def changed(self) -> None:
        """The state of some worker may be another now: health is worked out anew."""
        self._stale = True
        self._change.set()

    async def next_change(self) -> None:
        """Wait until the state of any worker may have changed since the last call."""
        await self._change.wait()
        self._change.clear()

    def turned(self, now: float) -> None:
        """The loop has turned: stamp the health snapshot, feed the watchdog."""
        self.turned_at = now
        if self._stale:
            self._stale = False
            self._serving = self._health_of_all()
            self._notifier.status(self._status_line())
        self._health.publish(HealthSnapshot(now, self._serving))
        self._notifier.watchdog()
        self._say_trouble()

    def crashed(self, error: BaseException | None) -> None:
        """The verdict loop itself has ended: the worst that can happen here."""
        text = "the verdict loop ended; workers live on, for the next daemon to adopt"
        self._log.critical(text, exc_info=error)

    def stood_still(self, lost: float, stack: list[str]) -> None:
        """The verdict loop has not turned for so many seconds. Called from another thread."""
        text = f"the verdict loop has stood still for {seconds(lost)}; ending without it"
        self._log.critical(text, stack=stack)

    def not_closed(self, error: Exception) -> None:
        """A part of ours could not be closed at the end; the others are all the same."""
        self._log.error("a part could not be closed", exc_info=error)

    def fault(self, worker: str, error: Exception, now: float) -> None:
        """A turn of one worker raised: a fault of ours that must not end the loop.

        The same fault of the same worker is told once in FAULT_SECONDS.
        """
        said = f"{type(error).__name__}: {error}"
        before, until = self._faults.get(worker, ("", Deadline.after(now, 0.0)))
        if said == before and not until.passed(now):
            return
        self._faults[worker] = said, Deadline.after(now, FAULT_SECONDS)
        self._log.exception("fault", worker=worker, exc_info=error)
        text = f"a fault of ours in its turn: {said}"
        self.events([Event(Kind.DAEMON, text, worker)], now)

    def _health_of_all(self) -> dict[str, bool]:
        serving = {
            worker_name(name): unit.state.lifecycle is State.HEALTHY
            for name, unit in self._units.items()
        }
        serving[READY] = self._ready.holds(
            Standing(name, unit.state.lifecycle, unit.policy.autostart)
            for name, unit in self._units.items()
            if not unit.removed
        )
        return serving

    def _status_line(self) -> str:
        counts: dict[str, int] = {}
        for unit in self._units.values():
            counts[unit.state.lifecycle.value] = counts.get(unit.state.lifecycle.value, 0) + 1
        return (
            counted(len(self._units), "worker")
            + ": "
            + ", ".join(f"{count} {state}" for state, count in counts.items())
        )

    def _log_event(self, event: Event) -> None:
        target = event.to_state
        level = "info"
        if target in LOUD or event.kind in WARNINGS:
            level = "error" if target == State.FAILED else "warning"
        fields = {
            "worker": event.worker,
            "incarnation": event.incarnation,
            "state": f"{event.from_state}->{target}" if target else "",
            "cause": str(event.cause),
            "rank": event.rank,
        }
        told = {key: value for key, value in fields.items() if value}
        getattr(self._log, level)(event.sentence, kind=event.kind.value, **told)

    def _say_trouble(self) -> None:
        trouble = self.trouble
        if trouble != self._said_trouble:
            self._said_trouble = trouble
            if trouble:
                self._log.error(trouble)
