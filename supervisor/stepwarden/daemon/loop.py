"""The loop: gather -> judge -> advance -> act -> report, at the next deadline and each second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from stepwarden.clock import Clock
from stepwarden.core import turn as core
from stepwarden.core.awareness import Awareness
from stepwarden.core.deadline import Deadline, earliest, elapsed
from stepwarden.core.event import Event, Kind
from stepwarden.core.finding import Diagnosis, Finding
from stepwarden.core.governor import always
from stepwarden.core.lifecycle import LIVE, State
from stepwarden.core.sentences import seconds
from stepwarden.core.shadows import shadow_subjects
from stepwarden.core.worker import Outcome
from stepwarden.daemon import gather
from stepwarden.daemon.act import Actor
from stepwarden.daemon.fact_finding import FactFinder, StartTask
from stepwarden.daemon.governing import Governing
from stepwarden.daemon.life import Life
from stepwarden.daemon.report import Reporter
from stepwarden.daemon.self_doubt import SelfDoubt
from stepwarden.daemon.starving import Starving
from stepwarden.daemon.unit import Unit
from stepwarden.edge.oom_count import OomCount
from stepwarden.edge.process_table import ProcessTable
from stepwarden.edge.snapshots import Snapshots
from stepwarden.waiting import wait

Follow = Callable[[Unit, Outcome, float], None]
"""Takes a worker, what one call into the core came to, and when."""

Learn = Callable[[Unit, Life, float], None]
"""Looks at the ended steps of a life whose pages have just been read."""

OnTurned = Callable[[float, float], None]
"""Told after each turn: when it was due, and when it began."""

CATCH_UP_SECONDS = 0.5
"""After a pause of ours the loop takes in what has queued up for this long before it judges."""

YOUNG_SECONDS = 10.0
FAMILY_SECONDS = 5.0
"""A family is looked at each second until its worker is ready and while it is this young, for its
tree grows then; afterwards this often."""

SLICE_SECONDS = 0.02
BREATH_SECONDS = 0.001
"""A turn of hundreds of workers is cut: after each slice, between two workers, beats are taken."""

MIN_REST_SECONDS = 0.01
"""The loop never turns more often than this for deadlines alone."""


class VerdictLoop:
    """Runs every worker's turn. `poke()` makes it look at once.

    `followers` are told of each outcome once it is taken over. `start_task`: runs what reads the
    kernel's facts of late ranks; None: they are not read.
    """

    def __init__(
        self,
        units: Mapping[str, Unit],
        actor: Actor,
        reporter: Reporter,
        snapshots: Snapshots,
        clock: Clock,
        followers: Sequence[Follow] = (),
        on_turned: OnTurned | None = None,
        learn: Learn | None = None,
        governing: Governing | None = None,
        self_doubt: SelfDoubt | None = None,
        start_task: StartTask | None = None,
        starving: Starving | None = None,
    ) -> None:
        self._units = units
        self._followers = followers
        self._on_turned = on_turned
        self._learn = learn
        self._governing = governing
        self._self_doubt = self_doubt
        self._starving = starving
        self._actor = actor
        self._reporter = reporter
        self._snapshots = snapshots
        self._clock = clock
        self._poked = asyncio.Event()
        self._stopping = False
        self._blind = False
        self._awareness = Awareness()
        self._expected = clock.monotonic()
        self._full_at = Deadline(self._expected)
        self._oom = OomCount()
        self._facts = None if start_task is None else FactFinder(start_task, self.poke, clock)

    def poke(self, unit: Unit | None = None) -> None:
        """Something happened (an exit, an attach, a command): look at this worker now."""
        if unit is not None:
            unit.dirty = True
        self._poked.set()

    def stop(self) -> None:
        """End `run` after the present turn."""
        self._stopping = True
        self._poked.set()

    async def run(self) -> None:
        """Turn until `stop`."""
        self._expected = self._clock.monotonic()
        while not self._stopping:
            due = self._expected
            self._note_lag(due)
            await self._doubt_myself()
            now = self._clock.monotonic()
            self._poked.clear()
            # An exit whose signal is still under way, or was lost in a flood of others.
            self._actor.exits.reaper.reap()
            ended = await self._turn(now)
            self._reporter.turned(ended)
            if self._on_turned is not None:
                self._on_turned(due, now)
            wake = self._next_wake(ended)
            self._expected = wake.at if wake.at is not None else now
            with suppress(TimeoutError):
                await wait(self._poked.wait(), wake, self._clock)

    @property
    def doubt(self) -> tuple[int, tuple[str, ...]]:
        """How much the daemon doubts itself, 0 to 8, and what for."""
        return self._awareness.score, self._awareness.why

    def _note_lag(self, due: float) -> None:
        if self._self_doubt is not None:
            self._self_doubt.woke(due, self._clock.monotonic())

    def _look_around(self, now: float) -> None:
        """Once a second: is it us, or the host, rather than a worker?"""
        if self._self_doubt is not None:
            doubts = self._self_doubt.doubts(self._units.values(), now)
            self._awareness = self._awareness.looked(doubts, now)
        if self._governing is not None:
            self._governing.look(now)

    async def _doubt_myself(self) -> None:
        now = self._clock.monotonic()
        if self._awareness.woke(self._expected, now) is self._awareness:
            return
        # Beats have queued up while we stood still. They are taken in before anybody is judged,
        # and that time counts as part of the pause.
        await asyncio.sleep(CATCH_UP_SECONDS)
        now = self._clock.monotonic()
        self._awareness = self._awareness.woke(self._expected, now).forget_before(
            self._oldest_begin(now)
        )
        lost = elapsed(self._expected, now)
        text = f"our own loop stood still for {seconds(lost)}; no clock counts that time"
        data: dict[str, float | str] = {
            "seconds": lost,
            **Finding(Diagnosis.SUPERVISOR_PAUSED, text).data,
        }
        self._reporter.events([Event(Kind.SUPERVISOR_PAUSED, text, data=data)], now)

    def _oldest_begin(self, now: float) -> float:
        """Where the oldest clock that runs began; budgets may be days long. No older pause counts.

        A beat that is overdue is timed from the last one, whatever the page has shown since.
        """
        begins = [now]
        for unit in self._units.values():
            begins += [clock.began for clock in unit.clocks]
            begins += [suspicion.clock.began for suspicion in unit.state.suspicions]
            if unit.life is not None:
                for memory in unit.life.ranks.values():
                    begins.append(memory.beats.beat_at if memory.beats else memory.attached_at)
        return min(begins)

    async def _turn(self, now: float) -> float:
        """Look at all that are due. Returns the instant of the last slice."""
        full = self._full_at.passed(now)
        if full:
            self._oom.look(now)
            self._full_at = Deadline.after(now, core.HEARTBEAT_SECONDS)
            self._look_around(now)
        due = [u for u in self._units.values() if full or u.dirty or u.wake.passed(now)]
        return await self._turn_units(due, now)

    async def _turn_units(self, due: Iterable[Unit], now: float) -> float:
        table: ProcessTable | None = None
        slice_ends = Deadline.after(now, SLICE_SECONDS)
        for unit in due:
            if slice_ends.passed(self._clock.monotonic()):
                now = await self._breathe()
                slice_ends = Deadline.after(now, SLICE_SECONDS)
                table = None  # an older one could lack whoever was born, or became known, meanwhile
            if self._units.get(unit.config.name) is not unit:
                continue  # forgotten meanwhile
            looked = table
            try:
                table = self._turn_unit(unit, table, now)
            except Exception as error:
                # One worker's data must not end the loop for the others.
                unit.wake = Deadline.after(now, core.HEARTBEAT_SECONDS)
                self._reporter.fault(unit.config.name, error, now)
            if table is not looked:  # which may take longer than a slice: it has to serve for one
                slice_ends = Deadline.after(self._clock.monotonic(), SLICE_SECONDS)
        return now

    async def _breathe(self) -> float:
        """Let others have the loop between two workers. Returns the instant from which it goes on.

        A pause of ours may fall into this one too, and is nobody's fault here either.
        """
        self._expected = self._clock.monotonic() + BREATH_SECONDS
        await asyncio.sleep(BREATH_SECONDS)
        await self._doubt_myself()
        return self._clock.monotonic()

    def _turn_unit(self, unit: Unit, table: ProcessTable | None, now: float) -> ProcessTable | None:
        unit.dirty = False
        life = unit.life
        if life is not None and _looked_at(unit):
            gather.read_pages(life, self._actor.watch, now)
            self._actor.note_arrival(unit, life, now)
            self._reporter.events(gather.arrivals(life), now)
            if self._learn is not None:
                self._learn(unit, life, now)
            self._look_starved(unit, life, now)
            if self._family_due(unit, now):
                table = table or self._scan(now)
                if table is not None:
                    self._actor.observe(life, table, now)
        evidence = gather.evidence_of(life) if life is not None else gather.NOTHING
        clocks = core.clocks_of(unit.state, unit.policy, evidence, self._awareness, now)
        late = core.late_subjects(clocks, now)
        late |= shadow_subjects(unit.policy, evidence, clocks, now)
        if late and life is not None and self._look_starved(unit, life, now, late=True):
            evidence = gather.evidence_of(life)
            clocks = core.clocks_of(unit.state, unit.policy, evidence, self._awareness, now)
        if late and life is not None:
            table = table or self._scan(now)
            gather.sample(life, late, table, now)
            evidence = gather.evidence_of(life)
        if gather.has_ended(evidence):
            evidence = replace(evidence, oom_kills=self._oom.recent(now))
        leave = always if self._governing is None else self._governing.leave_of(unit)
        outcome = core.advance(
            unit.state, unit.policy, evidence, self._awareness, now, leave, clocks
        )
        unit.clocks = clocks
        self.apply(unit, outcome, now)
        if self._facts is not None:
            self._facts.look(unit, table, now)
        return table

    def _look_starved(self, unit: Unit, life: Life, now: float, *, late: bool = False) -> bool:
        """Read what the worker could not use of its time; True where that is more than before."""
        return self._starving is not None and self._starving.look(unit, life, now, late=late)

    def _scan(self, now: float) -> ProcessTable | None:
        """All processes; None, said once, where they cannot be read (no descriptor is left)."""
        try:
            table = self._snapshots.table(now)
        except OSError as error:
            if not self._blind:
                text = f"cannot look at the processes now: {error.strerror}; CPU counts as unknown"
                self._reporter.events([Event(Kind.DAEMON, text)], now)
            self._blind = True
            return None
        self._blind = False
        return table

    def apply(self, unit: Unit, outcome: Outcome, now: float) -> None:
        """Take an outcome over: state, actions, events."""
        changed = outcome.state is not unit.state
        unit.state = outcome.state
        for action in outcome.actions:
            self._actor.take(unit, action, now)
        self._reporter.events(outcome.events, now)
        if outcome.events or (changed and unit.state.lifecycle not in LIVE):
            self._reporter.changed()
        if unit.state.lifecycle not in LIVE:
            unit.clocks = ()
        unit.wake = core.next_wake(unit.state, unit.policy, unit.clocks, self._awareness, now)
        for follow in self._followers:
            follow(unit, outcome, now)

    def look(self, unit: Unit, now: float) -> None:
        """Bring what is known of a worker up to date for somebody who asks; judge nothing."""
        life = unit.life
        if life is None or unit.state.lifecycle not in LIVE:
            return
        gather.read_pages(life, self._actor.watch, now)
        evidence = gather.evidence_of(life)
        unit.clocks = core.clocks_of(unit.state, unit.policy, evidence, self._awareness, now)

    def _family_due(self, unit: Unit, now: float) -> bool:
        life = unit.life
        if life is None or life.family is None:
            return False
        if life.observed_at is None:
            return True
        grown = unit.state.ready and elapsed(life.spawned_at, now) >= YOUNG_SECONDS
        rest = FAMILY_SECONDS if grown else core.HEARTBEAT_SECONDS
        # Half a turn early is soon enough: the turns themselves are a second apart.
        return elapsed(life.observed_at, now) >= rest - core.HEARTBEAT_SECONDS / 2

    def _next_wake(self, now: float) -> Deadline:
        wake = earliest(self._full_at, *(unit.wake for unit in self._units.values()))
        floor = Deadline.after(now, MIN_REST_SECONDS)
        if wake.at is None or floor.at is None:
            return self._full_at
        return replace(wake, at=max(wake.at, floor.at))


def _looked_at(unit: Unit) -> bool:
    """A live worker, and an attached one that failed to come: it may come yet."""
    lifecycle = unit.state.lifecycle
    return lifecycle in LIVE or (unit.policy.attached and lifecycle is State.FAILED)
