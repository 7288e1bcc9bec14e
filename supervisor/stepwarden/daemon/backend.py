"""What the admin service shows of the daemon, and the commands it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from stepwarden.clock import Clock
from stepwarden.core.clocks import Cause, RunningClock, live_ranks
from stepwarden.core.commands import command
from stepwarden.core.deadline import elapsed
from stepwarden.core.diagnosis import standing
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import RankEvidence
from stepwarden.core.finding import Finding
from stepwarden.core.lifecycle import ENDING, LIVE, State
from stepwarden.core.policy import AGENT_NONE
from stepwarden.core.sentences import seconds
from stepwarden.daemon import gather
from stepwarden.daemon.governing import Governing
from stepwarden.daemon.grouping import Groups
from stepwarden.daemon.incidents import Incidents
from stepwarden.daemon.life import Life, RankMemory
from stepwarden.daemon.loop import VerdictLoop
from stepwarden.daemon.reloading import Reloader
from stepwarden.daemon.report import Reporter
from stepwarden.daemon.unit import Unit
from stepwarden.daemon.watching import probe_answer
from stepwarden.edge.learned_views import LearnedView
from stepwarden.edge.reload_views import ConfigView, Effect, ReloadChange, ReloadOutcome
from stepwarden.edge.state_store import StateStore
from stepwarden.edge.views import (
    DoubtView,
    EventFilter,
    Explanation,
    RankView,
    RecordedEvent,
    WorkerView,
)
from stepwarden.errors import ActionFailedError


class Backend:
    """The daemon as the admin service sees it. `closed`: why it takes no commands now, or ""."""

    def __init__(
        self,
        units: Mapping[str, Unit],
        loop: VerdictLoop,
        reporter: Reporter,
        store: StateStore,
        clock: Clock,
        groups: Groups | None = None,
        runner_note: Callable[[], str] = lambda: "",
        governing: Governing | None = None,
        incidents: Incidents | None = None,
    ) -> None:
        self._units = units
        self._groups = Groups(units) if groups is None else groups
        self._runner_note = runner_note
        self._governing = governing
        self._incidents = incidents
        self._loop = loop
        self._reporter = reporter
        self._store = store
        self._clock = clock
        self.reloader: Reloader | None = None
        self.closed = "starting; it takes no commands yet"

    async def reload(self, dry_run: bool) -> ReloadOutcome:
        """Load the daemon's own file again, or say what that would do."""
        assert self.reloader is not None
        return await self.reloader.reload("stepwarden reload", dry_run)

    def configuration(self) -> ConfigView:
        """The file in force."""
        assert self.reloader is not None
        return self.reloader.view()

    def unsettled(self, outcome: ReloadOutcome) -> list[str]:
        """Workers that a reload starts, restarts or removes, and that are not so far yet."""
        return [change.worker for change in outcome.changes if self._is_under_way(change)]

    def _is_under_way(self, change: ReloadChange) -> bool:
        unit = self._units.get(change.worker)
        if change.effect not in (Effect.ADDED, Effect.RESTARTED, Effect.REMOVED) or unit is None:
            return False
        return unit.removed or bool(unit.after) or unit.state.lifecycle in ENDING

    def workers(self) -> Sequence[WorkerView]:
        """Every configured worker, in the order of the file."""
        now = self._clock.monotonic()
        return [self._shown(unit, now) for unit in self._units.values()]

    def worker(self, name: str) -> WorkerView | None:
        """One worker; None where there is none of this name."""
        unit = self._units.get(name)
        return None if unit is None else self._shown(unit, self._clock.monotonic())

    def _shown(self, unit: Unit, now: float) -> WorkerView:
        try:
            self._loop.look(unit, now)
            return _view(unit, self._groups, now)
        except Exception as error:
            # One worker's data must hide neither the others nor its own state.
            text = f"its ranks cannot be shown, a fault of ours: {type(error).__name__}: {error}"
            bare = _view(Unit(unit.config, unit.state), self._groups, now)
            return replace(bare, sentence=f"{unit.state.sentence}; {text}".removeprefix("; "))

    def command(self, action: str, name: str) -> None:
        """Begin to start, stop or restart a worker."""
        if self.closed:
            raise ActionFailedError(f"the supervisor is {self.closed}")
        unit = self._units[name]
        if unit.removed:
            raise ActionFailedError(f"{name}: the configuration does not name it any more")
        now = self._clock.monotonic()
        outcome = command(unit.state, action, now)
        if outcome.refusal is not None:
            raise ActionFailedError(f"{name}: {outcome.refusal}")
        unit.dismissed = frozenset()
        self._loop.apply(unit, outcome, now)
        self._loop.poke(unit)

    async def kept(self) -> None:
        """Wait until the last command is on disk; a disk that takes nothing holds up nobody."""
        noted = await self._store.durable()
        if not noted:
            text = f"the operator's word is not on disk yet ({noted.reason}): until it is,"
            text += " a daemon that comes after a crash of this one may not know of it"
            self._reporter.note(Event(Kind.DAEMON, text))

    def explain(
        self, name: str, num_seqs: int | None, num_tokens: int | None, phase: str
    ) -> Explanation:
        """What one step of this worker may take."""
        policy = self._units[name].policy
        budget = policy.step_budget(num_seqs, num_tokens)
        cap = policy.step_cap(budget.seconds)
        text = f"{budget.arithmetic}; hard cap {seconds(cap)}"
        if phase in {"loading", "compiling", "warmup"}:
            text += f"; while {phase}, the startup budget of {policy.startup:g} s stands guard"
        return Explanation(budget.seconds, cap, text)

    def recent(self, limit: int, wanted: EventFilter) -> Sequence[RecordedEvent]:
        """The newest events that are `wanted`, oldest first."""
        return self._store.journal.recent(limit, wanted)

    def loop_age(self) -> float:
        """Seconds since the verdict loop last turned."""
        return elapsed(self._reporter.turned_at, self._clock.monotonic())

    def trouble(self) -> str:
        """What is wrong with the daemon itself, or its state on disk."""
        return self._reporter.trouble

    def runner_note(self) -> str:
        """Why `runner: auto` is not what it would rather be."""
        return self._runner_note()

    def doubt(self) -> DoubtView:
        """How much the daemon doubts itself, and what its governor holds up."""
        score, why = self._loop.doubt
        standing = ""
        if self._governing is not None:
            standing = self._governing.standing(self._clock.monotonic())
        return DoubtView(score, " and ".join(why), standing)

    def stacks_note(self) -> str:
        """Why stacks of hung workers cannot be captured."""
        return "" if self._incidents is None else self._incidents.note

    def incidents(self) -> Path | None:
        """Where bundles are kept."""
        return None if self._incidents is None else self._incidents.directory


def _view(unit: Unit, groups: Groups, now: float) -> WorkerView:
    state, life = unit.state, unit.life
    live = state.lifecycle in LIVE
    finding = finding_of(unit, now)
    used = groups.used(state.name, now)
    startup = [c.deadline.remaining(now) for c in unit.clocks if c.cause is Cause.STARTUP]
    return WorkerView(
        name=state.name,
        state=state.lifecycle.value,
        cause=str(state.cause),
        sentence=state.sentence,
        incarnation=state.life,
        pid=life.main.pid if life is not None and life.main is not None else 0,
        state_age=elapsed(state.since, now),
        uptime=elapsed(_spawned_at(unit), now) if live and not state.held else 0.0,
        restarts_used=state.ledger.used(unit.policy.restart, now) if used is None else used,
        restarts_limit=unit.policy.restart.limit,
        last_exit=state.last_exit,
        last_death=state.last_death,
        backend=unit.policy.backend,
        ranks=_ranks(unit, life, now) if life is not None else (),
        startup_left=startup[0] if startup else None,
        restart_in=_restart_in(unit, now),
        agent_silent=bool(state.silent),
        leftover_pids=tuple(process.pid for process in sorted(state.leftovers)),
        false_alarms=state.false_alarms,
        deaths=state.deaths,
        windows_granted=max((s.windows for s in state.suspicions), default=0),
        runner="" if life is None else life.runner,
        unit="" if life is None else life.unit,
        cgroup="" if life is None else life.cgroup,
        group=groups.name_of(state.name),
        held="" if life is None else life.held,
        probe="" if life is None else probe_answer(life),
        output_directory=_output_of(unit),
        restart_needed=" and ".join(() if life is None else life.outdated) if live else "",
        removed=unit.removed,
        mode="observe" if unit.policy.observe else "enforce",
        would_be_dead=any(suspicion.would_be_dead for suspicion in state.suspicions),
        diagnosis=finding.diagnosis.value if finding else "",
        grounds=finding.sentence if finding else "",
        diagnosed_rank=finding.rank if finding else "",
        learn="" if unit.policy.agent == AGENT_NONE else unit.policy.learn,
        learned=() if life is None else tuple(_learned(life)),
    )


def finding_of(unit: Unit, now: float) -> Finding | None:
    """Why it is late or ended; of one that is well: silent, idle, or None."""
    state, life = unit.state, unit.life
    if state.lifecycle in (State.STOPPED, State.STOPPING):
        return None
    if state.finding is not None or state.lifecycle is not State.HEALTHY or life is None:
        return state.finding
    return standing(live_ranks(gather.evidence_of(life)), state.silent, now)


def _learned(life: Life) -> Iterator[LearnedView]:
    for name, memory in sorted(life.ranks.items()):
        lesson = memory.lesson
        if lesson is not None and any(lesson.usual.rows):
            of = lesson.subject.sentence()
            yield LearnedView(name, of, lesson.usual, lesson.usual.lived)


def _output_of(unit: Unit) -> Path | None:
    output = unit.running_config.output
    return output.path if output.mode == "capture" else None


def _spawned_at(unit: Unit) -> float:
    """When its life began; its clocks may have begun later, when a daemon adopted it."""
    life = unit.life
    if life is not None and life.adopted and life.spawned_at:
        return life.spawned_at
    return unit.state.spawned_at


def _restart_in(unit: Unit, now: float) -> float | None:
    if unit.state.lifecycle is not State.RESTARTING:
        return None
    return unit.state.restart_at.remaining(now)


def _ranks(unit: Unit, life: Life, now: float) -> tuple[RankView, ...]:
    evidence = gather.evidence_of(life).ranks
    clocks = {c.subject: c for c in unit.clocks if c.cause is Cause.STEP}
    return tuple(
        _rank(name, rank, life.ranks[name], clocks.get(name), now)
        for name, rank in sorted(evidence.items())
    )


def _rank(
    name: str, rank: RankEvidence, memory: RankMemory, clock: RunningClock | None, now: float
) -> RankView:
    step, work = rank.oldest, rank.work
    beats, page = memory.beats, memory.page
    timed = clock if clock and clock.step and step and clock.step.number == step.number else None
    return RankView(
        name=name,
        pid=rank.process.pid if rank.process else 0,
        phase=rank.phase,
        step=step.number if step else 0,
        num_seqs=step.num_seqs if step else None,
        num_tokens=step.num_tokens if step else None,
        step_age=elapsed(step.begin, now) if step else None,
        budget=timed.budget if timed else None,
        budget_left=timed.deadline.remaining(now) if timed else None,
        beat_age=None if rank.beat_at is None else elapsed(rank.beat_at, now),
        cpu_percent=memory.cpu_percent,
        steps_ended=rank.steps_ended,
        rss_bytes=beats.last.rss_bytes if beats else None,
        in_flight=_in_flight(memory),
        requests_unfinished=work.unfinished if work else None,
        loop_turns=max(0, work.loop_turns) if work else None,
        loop_age=elapsed(work.loop_at, now) if work and work.loop_turns > 0 else None,
        steps_unrecorded=page.overflows if page else 0,
        beats_refused=beats.refused if beats else 0,
        stamps_clamped=(beats.clamped if beats else 0) + (page.clamped if page else 0),
        agent_version=beats.last.agent_version if beats else "",
        detail=beats.last.detail if beats else "",
    )


def _in_flight(memory: RankMemory) -> int:
    """Open steps; the page knows better than the last beat."""
    if memory.page is not None:
        return len(memory.page.steps)
    return memory.beats.last.in_flight if memory.beats is not None else 0
