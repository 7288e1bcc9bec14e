"""The proof of what went wrong: stacks at the deadline and before the verdict, and sealed bundles.

    UNHEALTHY        the stacks of all ranks, then a bundle
    before a verdict the stacks again; the difference is evidence for that verdict
    DEAD             the ending of the tree waits for this, within `incidents.limit`; then a bundle
    shadow alarm     the stacks alone: what learned numbers suspect is nobody's fault yet

A healthy worker is never looked at. Everything here runs in tasks and threads of its own.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC
from functools import partial
from pathlib import Path

from stepwarden.clock import Clock
from stepwarden.config import SupervisorSettings
from stepwarden.config.settings import IncidentSettings
from stepwarden.core.clocks import WORKER, RunningClock
from stepwarden.core.deadline import Deadline, ago, earliest
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import ProcessId
from stepwarden.core.lifecycle import LIVE, State
from stepwarden.core.stacks import NOTHING_SEEN, Place, StackDiff, together
from stepwarden.core.worker import Outcome
from stepwarden.daemon.hooks import Hooks
from stepwarden.daemon.incident_counts import IncidentCounts
from stepwarden.daemon.incident_report import Proof, members_of
from stepwarden.daemon.life import Life
from stepwarden.daemon.timeline import Timeline
from stepwarden.daemon.unit import Unit
from stepwarden.edge import bundle
from stepwarden.edge.aside import Aside
from stepwarden.edge.cgroup import at_control_group
from stepwarden.edge.host_facts import group_facts, host_facts
from stepwarden.edge.stack_capture import Capture, StackCapture, compare_captures, told
from stepwarden.edge.tracing import Tracing, find_tracing
from stepwarden.edge.views import RecordedEvent
from stepwarden.naming import counted
from stepwarden.waiting import wait

DIRECTORY = "incidents"
KEPT_EVENTS = 100
"""So many of the newest events of each worker are at hand for a bundle."""

WRITE_SECONDS = 30.0
"""A disk that has not taken a bundle by then is given up for this one."""

FIND_SECONDS = 2.0
"""Our start waits no longer for what can be captured with."""

MARGIN_SECONDS = 1.0
"""So much earlier than it must be, the stacks before a verdict are looked at."""

SHADOW_KINDS = frozenset({Kind.SHADOW_ALARM, Kind.SHADOW_DEATH})
SHADOW_SECONDS = 60.0
"""For shadows the stacks of one worker are looked at no more often than this."""

REST_SECONDS = 30.0
MOST_LOOKS = 2
"""An alarm is looked at, and kept, where the last one of its worker is so long over, and no more
than these are under way: a bad day with a thousand late ranks must leave the judge his time. A
verdict and a death are always looked at."""


@dataclass(slots=True)
class Case:
    """One suspicion of a worker, from its first to its end. `first` and the newest two looks.

    `looked_for`: the instant of the verdict that the newest look was for. `bundle`: its id.
    `spared`: its alarm was not looked at, because of many others.
    """

    life: str
    aside: Aside
    host: Aside
    first: Capture | None = None
    before: Capture | None = None
    newest: Capture | None = None
    diffs: dict[str, StackDiff] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None
    looked_for: float | None = None
    clocks: tuple[RunningClock, ...] = ()
    bundle: str = ""
    alarm: bool = True
    spared: bool = False

    @property
    def busy(self) -> bool:
        """Whether a look is under way."""
        return self.task is not None and not self.task.done()

    def captures(self) -> dict[str, Capture]:
        """What is told of it, the oldest first."""
        named = {"first": self.first, "before": self.before, "last": self.newest}
        found: dict[str, Capture] = {}
        for name, capture in named.items():
            if capture is not None and all(capture is not other for other in found.values()):
                found[name] = capture
        return found

    def take(self, capture: Capture) -> None:
        """One more look."""
        self.before, self.newest = self.newest, capture
        self.first = self.first or capture
        self.diffs = {} if self.before is None else compare_captures(self.before, capture)


class Incidents:
    """Follows every worker; `units`: those there are. `note` says why stacks cannot be captured."""

    def __init__(
        self,
        units: Mapping[str, Unit],
        settings: SupervisorSettings,
        capture: StackCapture,
        hooks: Hooks,
    ) -> None:
        self._units = units
        self._settings = settings
        self.settings: IncidentSettings = settings.incidents
        self._capture = capture
        self._hooks = hooks
        self._clock: Clock = hooks.clock
        self._tracing = Tracing()
        self._disk = Aside(hooks.clock)
        self._writing = asyncio.Lock()
        self._cases: dict[str, Case] = {}
        self._alarmed: dict[str, float] = {}
        self._timelines: dict[str, Timeline] = {}
        self._events: dict[str, deque[RecordedEvent]] = {}
        self.directory: Path = settings.state_dir / DIRECTORY
        self.counts = IncidentCounts()
        self.refusal = ""

    async def start(self) -> None:
        """Find out what there is, sweep what a killed daemon left, and say what is missing."""
        deadline = Deadline.after(self._clock.monotonic(), FIND_SECONDS)
        with suppress(OSError):
            self._tracing = await Aside(self._clock).call(find_tracing, deadline)
        self._say_refusal()
        self._hooks.tasks.start(self._sweep())

    async def _sweep(self) -> None:
        async with self._writing:
            deadline = Deadline.after(self._clock.monotonic(), WRITE_SECONDS)
            with suppress(OSError):
                await self._disk.call(partial(bundle.sweep, self.directory), deadline)

    def _say_refusal(self) -> None:
        others = [
            name
            for name, unit in self._units.items()
            if unit.config.run_as.user is not None and unit.config.argv
        ]
        before, self.refusal = self.refusal, ""
        if self.settings.stacks:
            self.refusal = self._tracing.refused(others)
        self.counts.stacks_available = self.settings.stacks and not self._tracing.refusal
        if self.refusal and self.refusal != before:
            text = f"stacks of hung workers cannot be captured: {self.refusal}"
            self._hooks.note(Event(Kind.DAEMON, text))

    @property
    def note(self) -> str:
        """For `status`: why no stacks can be captured; "" where they can."""
        return f"no stacks of hung workers: {self.refusal}" if self.refusal else ""

    def reconfigure(self, settings: IncidentSettings) -> None:
        """What the file says now."""
        self.settings = settings
        self._say_refusal()

    # What happens

    def event(self, recorded: RecordedEvent) -> None:
        """Keep the newest events of each worker at hand; look where learned numbers suspect."""
        event = recorded.event
        unit = self._units.get(event.worker)
        if unit is None:
            return
        kept = self._events.get(event.worker)
        if kept is None:
            kept = self._events[event.worker] = deque(maxlen=KEPT_EVENTS)
        kept.append(recorded)
        if event.kind in SHADOW_KINDS:
            self._shadow(unit)

    def follow(self, unit: Unit, outcome: Outcome, now: float) -> None:
        """A worker has had its turn."""
        life, state = unit.life, unit.state
        if life is None:
            return
        if state.lifecycle in LIVE:
            self._timeline(life).sample(life, bool(state.suspicions), now)
        for event in outcome.events:
            if event.to_state == State.UNHEALTHY:
                self._suspected(unit, life, event)
        if state.suspicions:
            self._before_verdict(unit, life, now)
        elif state.lifecycle in LIVE:
            self._cleared(life)

    def _timeline(self, life: Life) -> Timeline:
        found = self._timelines.get(life.worker)
        if found is None or found.life != life.name:
            for forgotten in (self._timelines, self._events, self._cases, self._alarmed):
                for name in [name for name in forgotten if name not in self._units]:
                    del forgotten[name]
            found = self._timelines[life.worker] = Timeline(life.name)
        return found

    def _case(self, life: Life) -> Case | None:
        case = self._cases.get(life.worker)
        return case if case is not None and case.life == life.name else None

    def _open(self, life: Life, alarm: bool) -> Case:
        case = self._cases[life.worker] = Case(life.name, Aside(self._clock), Aside(self._clock))
        case.alarm = alarm
        return case

    def _suspected(self, unit: Unit, life: Life, event: Event) -> None:
        case = self._case(life)
        if case is None or case.alarm or not self._young(case):
            case = self._open(life, True)
        case.alarm = True  # what a shadow saw just now is the first look of this one
        case.clocks = unit.clocks
        case.spared = not self._may_look(life.worker)
        if not case.spared:
            self._look(unit, life, case, event)

    def _may_look(self, worker: str) -> bool:
        """Whether an alarm of this worker is looked at now: not each of many in a row."""
        now, last = self._clock.monotonic(), self._alarmed.get(worker)
        often = last is not None and not Deadline.after(last, REST_SECONDS).passed(now)
        if often or sum(case.busy for case in self._cases.values()) >= MOST_LOOKS:
            return False
        self._alarmed[worker] = now
        return True

    def _before_verdict(self, unit: Unit, life: Life, now: float) -> None:
        case = self._case(life)
        if case is None or not case.alarm:
            return
        case.clocks = unit.clocks or case.clocks
        due = earliest(*(suspicion.due(0.0) for suspicion in unit.state.suspicions)).at
        if due is None or case.busy or case.looked_for == due:
            return
        if case.newest is None and not case.spared:
            return
        lead = min(self.settings.limit + MARGIN_SECONDS, unit.policy.window / 2)
        if Deadline(ago(lead, due)).passed(now):
            case.looked_for = due
            self._look(unit, life, case)

    def _cleared(self, life: Life) -> None:
        case = self._case(life)
        if case is not None and case.alarm and not case.busy:
            del self._cases[life.worker]
            life.stacks = {}

    def _shadow(self, unit: Unit) -> None:
        life = unit.life
        if life is None or unit.state.suspicions:
            return
        case = self._case(life) or self._open(life, False)
        if not case.busy and not self._young(case):
            self._look(unit, life, case)

    def _young(self, case: Case) -> bool:
        """Whether its newest look is so young that another one would tell nothing for itself."""
        now, newest = self._clock.monotonic(), case.newest
        return newest is not None and not Deadline.after(newest.at, SHADOW_SECONDS).passed(now)

    # Looking

    def _look(self, unit: Unit, life: Life, case: Case, event: Event | None = None) -> None:
        """Look in a task; with an event, keep a bundle of it afterwards."""
        under_way = case.task

        async def look() -> None:
            if under_way is not None and not under_way.done():
                await asyncio.wait({under_way})
            await self._look_now(unit, life, case, self.settings.limit)
            if event is not None:
                await self._keep(event, unit, life, case)

        case.task = self._hooks.tasks.start(look())

    async def _look_now(self, unit: Unit, life: Life, case: Case, limit: float) -> None:
        subjects = subjects_of(life)
        if not subjects:
            return
        settings = self.settings
        tracing = self._tracing if settings.stacks else None
        capture = await self._capture.capture(
            subjects, tracing, settings.native, limit, case.aside, case.newest
        )
        case.take(capture)
        self.counts.captured += capture.seen
        self.counts.not_captured += len(capture.looks) - capture.seen
        seen = together(case.diffs.values())
        life.stacks = {**case.diffs, WORKER: seen} if case.diffs else {}
        told_of = seen.place is not Place.UNKNOWN
        text = f"{told(capture)}; {seen.sentence}" if told_of else told(capture)
        data = {"seconds": capture.took, "seen": capture.seen, "of": len(capture.looks)}
        self._note(life, Kind.CAPTURED, text, **data, stacks=seen.place.value)
        self._hooks.poke(unit)

    def _note(self, life: Life, kind: Kind, text: str, **data: float | int | str | None) -> None:
        self._hooks.note(Event(kind, text, life.worker, str(life.incarnation), data=data))

    # Keeping

    async def before_burial(self, unit: Unit) -> None:
        """The tree of a worker is about to be ended: gather what only it can tell, in time."""
        life = unit.life
        if life is None or unit.state.lifecycle is not State.DEAD:
            return
        event = self._death(unit)
        case = self._case(life) or self._open(life, True)
        deadline = Deadline.after(self._clock.monotonic(), self.settings.limit)
        look = wait(self._last_look(unit, life, case, deadline), deadline, self._clock)
        host, _ = await asyncio.gather(
            self._host(life, case, deadline), look, return_exceptions=True
        )
        proof = self._proof("dead", event, unit, life, case, _facts(host))
        life.stacks = {}
        self._cases.pop(life.worker, None)
        self._start_write(proof, life)

    async def _last_look(self, unit: Unit, life: Life, case: Case, deadline: Deadline) -> None:
        if case.busy and case.task is not None:
            await asyncio.wait({case.task})
        # A window too short for a second look: what was condemned is still there.
        if case.newest is not None and not case.diffs and life.exit is None:
            left = deadline.remaining(self._clock.monotonic()) or 0.0
            await self._look_now(unit, life, case, left)

    async def _host(
        self, life: Life, case: Case, deadline: Deadline
    ) -> dict[str, Mapping[str, str]]:
        def read() -> dict[str, Mapping[str, str]]:
            group = at_control_group(life.cgroup) if life.cgroup else None
            return {
                "host": host_facts(),
                "worker": group_facts(None if group is None else group.path),
            }

        try:
            return await case.host.call(read, deadline)
        except OSError:  # TimeoutError is one too
            return {}

    async def _keep(self, event: Event, unit: Unit, life: Life, case: Case) -> None:
        limit = Deadline.after(self._clock.monotonic(), self.settings.limit)
        host = await self._host(life, case, limit)
        proof = self._proof("unhealthy", event, unit, life, case, host)
        case.bundle = self._start_write(proof, life)

    def _start_write(self, proof: Proof, life: Life) -> str:
        """Begin to keep it; returns the id that it gets, "" where none is kept."""
        if self.settings.keep == 0:
            return ""
        # Sorted by name they are sorted by time.
        when = f"{proof.wall:%Y%m%dT%H%M%S}{proof.wall.microsecond // 1000:03}Z"
        name = f"{when}-{life.worker}-{life.incarnation}-{proof.kind}-{secrets.token_hex(2)}"
        self._hooks.tasks.start_owed(self._write(name, proof, life))
        return name

    def _death(self, unit: Unit) -> Event:
        for recorded in reversed(self._events.get(unit.config.name, ())):
            if recorded.event.to_state == State.DEAD:
                return recorded.event
        return Event(Kind.TRANSITION, unit.state.sentence, unit.config.name, unit.state.life)

    def _proof(
        self,
        kind: str,
        event: Event,
        unit: Unit,
        life: Life,
        case: Case,
        host: Mapping[str, Mapping[str, str]],
    ) -> Proof:
        timeline = self._timelines.get(life.worker)
        return Proof(
            kind,
            event,
            self._clock.wall().astimezone(UTC),
            self._clock.monotonic(),
            unit.running_config,
            self._settings,
            _state(unit, life),
            {name: _rank(life, name) for name in life.ranks},
            case.clocks,
            None if timeline is None else timeline.copy(),
            tuple(self._events.get(life.worker, ())),
            case.captures(),
            dict(case.diffs),
            host,
            case.bundle,
            self.refusal,
            life.token,
        )

    async def _write(self, name: str, proof: Proof, life: Life) -> None:
        settings = self.settings
        async with self._writing:
            deadline = Deadline.after(self._clock.monotonic(), WRITE_SECONDS)
            try:
                work = partial(_write_down, self.directory, name, proof, settings)
                kept, removed = await self._disk.call(work, deadline)
            except OSError as error:  # TimeoutError is one too
                self.counts.not_kept += 1
                text = f"its proof cannot be kept: {error.strerror or error}"
                self._note(life, Kind.INCIDENT, text)
                return
        self.counts.kept += 1
        text = f"incident {name} is kept, {kept.size} bytes"
        if removed:
            text += f"; {counted(removed, 'older one')} removed"
        self._note(life, Kind.INCIDENT, text, incident=name, seal=kept.seal, size=kept.size)


def _facts(found: dict[str, Mapping[str, str]] | BaseException) -> dict[str, Mapping[str, str]]:
    return {} if isinstance(found, BaseException) else found


def _write_down(
    directory: Path, name: str, proof: Proof, settings: IncidentSettings
) -> tuple[bundle.Summary, int]:
    """In a thread."""
    head, members = members_of(proof)
    kept = bundle.write_bundle(directory, name, head, members, int(proof.wall.timestamp()))
    return kept, bundle.retain(directory, settings.keep, settings.max_size)


def subjects_of(life: Life) -> dict[str, ProcessId | None]:
    """Whose stacks are looked at: every rank that lives; without any, the main process."""
    ranks = {
        name: memory.process
        for name, memory in life.ranks.items()
        if not memory.lost and not memory.parted
    }
    if ranks or life.main is None:
        return ranks
    return {WORKER: life.main}


def _state(unit: Unit, life: Life) -> dict[str, object]:
    state = unit.state
    return {
        "state": state.lifecycle.value,
        "sentence": state.sentence,
        "deaths": state.deaths,
        "false_alarms": state.false_alarms,
        "runner": life.runner,
        "unit": life.unit,
        "cgroup": life.cgroup,
        "pid": None if life.main is None else life.main.pid,
        "family": sorted(p.pid for p in life.family.known) if life.family is not None else [],
        "last_exit": state.last_exit,
    }


def _rank(life: Life, name: str) -> dict[str, object]:
    memory = life.ranks[name]
    beats = memory.beats
    cpu = memory.cpu
    return {
        "pid": None if memory.process is None else memory.process.pid,
        "phase": memory.page.phase if memory.page is not None else beats.phase if beats else "",
        "agent": beats.last.agent_version if beats is not None else "",
        "lost": memory.lost,
        "cpu_seconds": None if cpu is None else sum(cpu.seconds.values()),
        "process_state": None if cpu is None else cpu.state,
        "stacks": life.stacks.get(name, NOTHING_SEEN).sentence,
    }
