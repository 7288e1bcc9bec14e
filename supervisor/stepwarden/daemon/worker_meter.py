"""What is counted of one worker and its ranks, and how it becomes figures once a second."""

from __future__ import annotations

from stepwarden.core.clocks import Cause, RunningClock
from stepwarden.core.deadline import elapsed
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import ProcessId, Step
from stepwarden.core.lifecycle import LIVE, State
from stepwarden.core.policy import WorkerPolicy
from stepwarden.core.scores import Scorebook
from stepwarden.core.sparing import OBSERVE_RULE
from stepwarden.daemon.gather import ended_steps
from stepwarden.daemon.life import RankMemory
from stepwarden.daemon.unit import Unit
from stepwarden.edge import metrics_table as table
from stepwarden.edge.metrics_snapshot import RankFigures, Values, WorkerFigures
from stepwarden.edge.metrics_tally import Counts, Histograms, Tally, labelled
from stepwarden.edge.step_samples import StepSample

READER = "metrics"
NO_SUSPICIONS = (0,) * len(table.SUSPECTED)
COUNTED = len(table.RANK_METRICS) - table.FIRST_RANK_COUNTER


class RankMeter:
    """One rank of one life. Its counters only rise, whatever page and beats say next."""

    def __init__(self, worker: str, name: str) -> None:
        self.labels = labelled(worker=worker, rank=name)
        self.counters: list[float | None] = [None] * COUNTED
        self._seen = [0.0] * COUNTED
        self._session: object = None

    def rise(self, session: object, values: tuple[float | None, ...]) -> None:
        """Take over what one process of the rank has counted so far; None: nothing is known."""
        if session != self._session:
            self._session, self._seen = session, [0.0] * COUNTED
        for position, value in enumerate(values):
            if value is not None:
                risen = max(0.0, value - self._seen[position])
                self._seen[position] += risen
                self.counters[position] = (self.counters[position] or 0) + risen


class WorkerMeter:
    """One worker, over all of its lives since this daemon started or began to know it."""

    def __init__(self, name: str) -> None:
        self._labels = labelled(worker=name)
        self._name = name
        self._restarts = Counts([self._labels])
        self._deaths = Counts([self._with(cause=cause) for cause in Cause])
        self._transitions = Counts()
        self._false_alarms = Counts([self._with(cause=cause) for cause in table.SUSPECTED])
        self._shadow_deaths = Counts([self._with(rule=OBSERVE_RULE)])
        self._diagnoses = Counts()
        self._scorebook = Scorebook()
        self._scores = Counts()
        self._detections = Histograms(table.LONG_SECONDS)
        self._alarm_lengths = Histograms(table.LONG_SECONDS, [self._labels])
        self._durations = Histograms(table.LONG_SECONDS)
        self._intervals = Histograms(table.INTERVAL_SECONDS)
        self._shares = Histograms(table.RATIOS, [self._labels])
        self._tallies: tuple[Tally, ...] = (
            self._restarts,
            self._deaths,
            self._transitions,
            self._false_alarms,
            self._shadow_deaths,
            self._diagnoses,
            self._scores,
            self._detections,
            self._alarm_lengths,
            self._durations,
            self._intervals,
            self._shares,
        )
        self._step_labels: dict[tuple[str, str], str] = {}
        self._ranks: dict[str, RankMeter] = {}
        self._life = ""

    def event(self, event: Event) -> None:
        """Count one event of this worker."""
        self._diagnosed(event)
        self._score(event)
        if event.kind is Kind.TRANSITION:
            way = {"from": event.from_state, "to": event.to_state, "cause": str(event.cause)}
            self._transitions.add(self._with(**way))
            if event.to_state == State.DEAD.value:
                self._deaths.add(self._with(cause=str(event.cause)))
            if (event.from_state, event.to_state) == (State.RESTARTING, State.STARTING):
                self._restarts.add(self._labels)
        elif event.kind is Kind.SHADOW_DEATH:
            self._shadow_deaths.add(self._with(rule=str(event.data.get("rule", ""))))
        elif event.kind is Kind.FALSE_ALARM:
            self._false_alarms.add(self._with(cause=str(event.cause)))
            seconds = event.data.get("seconds")
            if isinstance(seconds, int | float):
                self._alarm_lengths.observe(self._labels, seconds)

    def figures(self, unit: Unit, restarts_used: int, now: float) -> WorkerFigures:
        """What is true of the worker now, and what was counted of it."""
        self._look(unit)
        suspicions = NO_SUSPICIONS
        if unit.state.suspicions:
            causes = [suspicion.clock.cause for suspicion in unit.state.suspicions]
            suspicions = tuple(causes.count(cause) for cause in table.SUSPECTED)
        return WorkerFigures(
            labels=self._labels,
            state=unit.state.lifecycle.value,
            gauges=_gauges(unit, restarts_used, now),
            suspicions=suspicions,
            tallies=tuple([tally.freeze() for tally in self._tallies]),
            ranks=self._rank_figures(unit, now),
            diagnosis=unit.state.finding.diagnosis.value if unit.state.finding else "",
        )

    def _diagnosed(self, event: Event) -> None:
        diagnosis, verdict = event.data.get("diagnosis"), _verdict(event)
        if isinstance(diagnosis, str) and verdict:
            self._diagnoses.add(self._with(verdict=verdict, diagnosis=diagnosis))

    def _score(self, event: Event) -> None:
        for score in self._scorebook.take(event):
            what = {"scored": score.scored.value, "rule": score.rule}
            told = {**what, "cause": score.cause, "diagnosis": score.diagnosis}
            self._scores.add(self._with(**told, outcome=score.came_out.value))
            if score.detected is not None:
                self._detections.observe(self._with(**what), score.detected)

    def _with(self, **labels: str) -> str:
        return f"{self._labels},{labelled(**labels)}"

    def _look(self, unit: Unit) -> None:
        """Bring the meters of the ranks up to date."""
        life = unit.life
        if life is None or life.name != self._life:
            self._ranks, self._life = {}, "" if life is None else life.name
        if life is None:
            return
        for name, memory in life.ranks.items():
            meter = self._ranks.get(name)
            if meter is None:
                meter = self._ranks[name] = RankMeter(self._name, name)
            meter.rise(_session(memory), _counted(memory))
            if memory.page is not None and not memory.left:
                long, short = memory.reader.news(READER, memory.page, life.adopted)
                self._take_samples(unit.policy, long, short)

    def _take_samples(
        self, policy: WorkerPolicy, long: list[StepSample], short: list[StepSample]
    ) -> None:
        for sample in long:
            self._durations.observe(self._labels_of(sample), sample.seconds)
            budget = policy.step_budget(sample.num_seqs, sample.num_tokens).seconds
            if sample.number == 1:
                budget = max(budget, policy.first_step)
            if budget > 0.0:
                self._shares.observe(self._labels, sample.seconds / budget)
        for sample in short:
            self._intervals.observe(self._labels_of(sample), sample.seconds)

    def _labels_of(self, sample: StepSample) -> str:
        key = table.phase_label(sample.phase), table.batch_label(sample.num_seqs)
        known = self._step_labels.get(key)
        if known is None:
            known = self._step_labels[key] = self._with(phase=key[0], batch=key[1])
        return known

    def _rank_figures(self, unit: Unit, now: float) -> tuple[RankFigures, ...]:
        life = unit.life
        if life is None or unit.state.lifecycle not in LIVE:
            return ()
        clocks = {clock.subject: clock for clock in unit.clocks if clock.cause is Cause.STEP}
        return tuple(
            RankFigures(
                meter.labels,
                (*_rank_gauges(life.ranks[name], clocks.get(name), now), *meter.counters),
            )
            for name, meter in self._ranks.items()
        )


def _verdict(event: Event) -> str:
    """Which kind of verdict an event is; "" for none."""
    if event.kind is Kind.TRANSITION:
        return {"DEAD": "death", "UNHEALTHY": "alarm"}.get(event.to_state, "")
    return {Kind.SUSPICION: "alarm", Kind.RETRY: "retry", Kind.FALSE_ALARM: "false_alarm"}.get(
        event.kind, ""
    )


def _gauges(unit: Unit, restarts_used: int, now: float) -> Values:
    state, life = unit.state, unit.life
    live = life is not None and state.lifecycle in LIVE
    limit = unit.policy.restart.limit
    return (
        elapsed(state.since, now),
        elapsed(state.spawned_at, now) if live and not state.held else 0,
        state.incarnation,
        len(life.ranks) if live and life is not None else 0,
        len(state.silent),
        max((suspicion.windows for suspicion in state.suspicions), default=0),
        limit,
        max(0, limit - restarts_used),
        len(state.leftovers),
        int(unit.policy.observe),
        int(any(suspicion.would_be_dead for suspicion in state.suspicions)),
    )


def _rank_gauges(memory: RankMemory, clock: RunningClock | None, now: float) -> Values:
    beats, steps = memory.beats, _open_steps(memory)
    oldest = steps[0] if steps else None
    budget = left = None
    timed = None if clock is None or clock.step is None else clock.step.number
    if clock is not None and oldest is not None and timed == oldest.number:
        budget, left = clock.budget, clock.deadline.remaining(now)
    return (
        0 if oldest is None else elapsed(oldest.begin, now),
        budget,
        left,
        len(steps),
        None if beats is None else elapsed(beats.beat_at, now),
        None if beats is None else beats.last.rss_bytes,
    )


def _open_steps(memory: RankMemory) -> tuple[Step, ...]:
    if memory.page is not None:
        return () if memory.left else memory.page.steps
    return memory.beats.steps if memory.beats is not None else ()


def _session(memory: RankMemory) -> object:
    """Whose counters these are: another process of the rank counts from 0 again."""
    if memory.beats is not None:
        return memory.beats.process
    page = memory.page
    return None if page is None else ProcessId(page.pid, page.start_ticks)


def _counted(memory: RankMemory) -> Values:
    """As the counters of RANK_METRICS."""
    beats, page = memory.beats, memory.page
    steps = None
    if page is not None:
        steps = ended_steps(page)
    elif beats is not None:
        steps = beats.steps_ended
    clamped = [each.clamped for each in (beats, page) if each is not None]
    return (
        None if beats is None else beats.cpu_seconds,
        steps,
        page.overflows if page is not None else None,
        None if beats is None else beats.refused,
        sum(clamped) if clamped else None,
    )
