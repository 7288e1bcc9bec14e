"""Any interleaving of what can happen to one worker, and what must hold through all of it.

`Chaos` holds one worker with the real core, the real acceptance of beats and the real gathering of
evidence; only pages and processes are made up (chaos_world.py). A script of three bytes an event
says what happens (`play` in chaos_script.py). After each call into the core the invariants are
checked against a model of their own: who lives, who wants what, when each clock began, how long
the loop itself stood still.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import cast

from stepwarden.core import turn
from stepwarden.core.action import EndTree, Spawn
from stepwarden.core.awareness import LATE_WAKE_SECONDS, Awareness
from stepwarden.core.burying import buried
from stepwarden.core.clocks import live_ranks
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import (
    CpuSample,
    Lease,
    ProcessId,
    WorkerEvidence,
)
from stepwarden.core.heartbeat import BeatFacts
from stepwarden.core.lifecycle import ENDING, LIVE, State
from stepwarden.core.resume import resume
from stepwarden.core.verdict import Suspicion
from stepwarden.core.worker import Outcome, WorkerState
from stepwarden.daemon import gather
from stepwarden.daemon.leases import KEPT_LEASES
from stepwarden.daemon.life import Life
from stepwarden.edge.page_reader import PageReader

from support.chaos_daemon import Death, Known, Notes, Outside
from support.chaos_world import (
    EPSILON,
    MOST_TURNS_AT_ONCE,
    POLICIES,
    Pages,
    Rank,
)


class Chaos:
    """One worker in any weather."""

    def __init__(self, *, attached: bool = False) -> None:
        self.now = 1000.0
        self.attached = attached
        self.policy = replace(POLICIES[0], attached=attached)
        self.awareness = Awareness()
        self.pauses: list[tuple[float, float]] = []
        self.events = 0  # beats, steps, exits, commands, burials ... : whatever happened
        self.turns = 0
        self.counts: dict[str, int] = {}
        self.seen_events: dict[str, int] = {}
        self.leased: dict[str, list[Lease]] = {}  # by rank: all that it has held in this life
        self.pid = 100
        self.begun_by_platform = False
        self.life: Life | None = None
        self.pages = Pages()
        self.old_beats: list[BeatFacts] = []
        # The model.
        self.tree_alive = False
        self.wanted = True
        self.given_up = False
        self.died = False  # and what follows a death has not begun
        self.ending = False  # the daemon is, and takes the worker with it
        self.hold_next = False
        self.outside = Outside()
        self.notes = Notes()
        self.started_from = self.now  # where its startup clock begins
        self.back_at = self.now  # when it was last seen again after an adoption
        self.adopted_at = self.now
        self.burial_since: float | None = None
        self.first_ready: float | None = None
        self.unhealthy_since = 0.0
        self.streak = 0
        self.deaths: list[Death] = []
        self.known: dict[tuple[str, str, int], Known] = {}
        self.opened: set[tuple[str, str, int]] = set()
        self.state = WorkerState("w")
        self.expected = self.now
        self.take(resume(self.policy, self.now))

    def ranks(self) -> Mapping[str, Rank]:
        return self.pages.ranks

    def some_rank(self, number: int) -> Rank | None:
        names = sorted(self.pages.ranks)
        return self.pages.ranks[names[number % len(names)]] if names else None

    def go(self, seconds: float) -> None:
        """Time passes; the loop turns whenever it is due."""
        end = self.now + seconds
        turns_here = 0
        while self.expected <= end:
            turns_here = turns_here + 1 if self.expected <= self.now else 0
            assert turns_here < MOST_TURNS_AT_ONCE, "the loop spins"
            self.move(max(self.now, self.expected))
            self.turn()
        self.move(end)

    def move(self, to: float) -> None:
        """Only the clock moves, and what ticks and burns by itself."""
        for rank in self.pages.ranks.values():
            rank.burn(to)
            if not rank.frozen:
                rank.tick += int(to) - int(self.now)
        self.now = to

    def stand_still(self, seconds: float) -> None:
        """The loop wakes so much later than it was due."""
        due = max(self.now, self.expected)
        self.move(due + seconds)
        if self.now - self.expected > LATE_WAKE_SECONDS:
            self.pauses.append((self.expected, self.now))
        self.turn()

    # Into the core and out again.

    def evidence(self) -> WorkerEvidence:
        life = self.life
        if life is None:
            return WorkerEvidence()
        gather.read_pages(life, lambda _: True, self.now)
        for name, memory in life.ranks.items():
            rank = self.pages.ranks.get(name)
            if rank is not None and rank.percent is not None:
                seconds = {ProcessId(rank.pid, rank.pid): rank.cpu}
                memory.cpu = CpuSample(self.now, seconds, rank.state)
            else:
                memory.cpu = None
        return self.seen_from_outside(gather.evidence_of(life), life)

    def seen_from_outside(self, seen: WorkerEvidence, life: Life) -> WorkerEvidence:
        outside = self.outside
        tree = None
        if outside.idle and life.main is not None:
            tree = CpuSample(self.now, {life.main: 1.0}, "S")
        return replace(
            seen,
            held=outside.held,
            shut=outside.shut,
            spawned_at=outside.began_at,
            probe_ok=outside.probe_ok,
            progress=outside.progress,
            tree=tree,
        )

    def turn(self) -> None:
        """One turn of the loop."""
        self.turns += 1
        self.awareness = self.awareness.woke(self.expected, self.now)
        seen = self.evidence()
        before = self.state
        outcome = turn.advance(self.state, self.policy, seen, self.awareness, self.now)
        for event in outcome.events:
            self.check_verdict(event, before, seen)
        self.take(outcome, seen)

    def take(self, outcome: Outcome, seen: WorkerEvidence | None = None) -> None:
        before, self.state = self.state, outcome.state
        for event in outcome.events:
            what = f"{event.kind} {event.to_state} {event.cause}".rstrip()
            self.seen_events[what] = self.seen_events.get(what, 0) + 1
            if event.kind is Kind.TRANSITION:
                self.note_transition(event)
        for action in outcome.actions:
            if isinstance(action, Spawn):
                self.spawn(action, before)
            else:
                self.end_tree(action)
        assert self.state.deaths >= before.deaths
        assert self.state.false_alarms >= before.false_alarms
        assert self.state.incarnation >= before.incarnation
        self.note_suspicions()
        self.check_state()
        self.notes.write(self)
        if seen is None:
            seen = self.evidence()
        else:
            for suspicion in self.state.suspicions:  # judged just now
                self.check_suspicion(suspicion, seen)
            self.check_ranks(seen)
            self.check_wait(seen)
        clocks = turn.clocks_of(self.state, self.policy, seen, self.awareness, self.now)
        assert not (clocks and (seen.held or self.state.lifecycle is State.ADOPTED))
        wake = turn.next_wake(self.state, self.policy, clocks, self.awareness, self.now)
        wait = wake.remaining(self.now)
        assert wait is not None
        assert 0.0 <= wait <= turn.HEARTBEAT_SECONDS + EPSILON
        assert wake.at is not None
        assert wake.at >= self.now, "what is due in the past is taken for a pause of ours"
        self.expected = wake.at

    def spawn(self, action: Spawn, before: WorkerState) -> None:
        assert not self.tree_alive, "two lives at the same time"
        assert self.burial_since is None
        assert self.wanted, "started although the operator said stop"
        assert not self.given_up, "started although it had failed for good"
        assert not self.died, "started without its delay"
        assert not self.ending, "started by a daemon that ends"
        assert action.incarnation == before.incarnation + 1
        self.tree_alive = True
        self.first_ready = None
        self.leased = {}
        self.started_from = self.now
        self.outside = Outside(held="waits" if self.attached or self.hold_next else "")
        self.hold_next = False
        self.old_beats = [b for rank in self.pages.ranks.values() for b in rank.sent][-20:]
        self.pages = Pages()
        self.life = Life(
            "w",
            action.incarnation,
            f"w.{action.incarnation}",
            Path(),
            cast(PageReader, self.pages),
            token="",
            spawned_at=self.now,
            main=None if self.outside.held else ProcessId(self.next_pid(), 1),
        )

    def end_tree(self, action: EndTree) -> None:
        assert action.incarnation == self.state.incarnation
        assert self.burial_since is None, "a tree is ended twice"
        assert self.tree_alive
        self.burial_since = self.now

    def bury(self, leftovers: frozenset[ProcessId]) -> None:
        before = self.state
        self.burial_since = None
        self.tree_alive = bool(leftovers)
        spread = (self.events % 21 - 10) / 10.0
        outcome = buried(self.state, self.policy, leftovers, self.now, spread)
        self.check_restart_budget(before, outcome)
        self.take(outcome)

    @property
    def begun(self) -> bool:
        """A process of it runs."""
        return self.tree_alive and not self.outside.held

    def next_pid(self) -> int:
        self.pid += 1
        return self.pid

    # What the model keeps.

    def lost(self, since: float) -> float:
        """Seconds since then in which the loop stood still, by the model's own count."""
        return sum(max(0.0, end - max(since, begin)) for begin, end in self.pauses)

    def leased_since(self, name: str, since: float) -> float:
        """Seconds since then that any lease of the rank covers, counted in small pieces."""
        cap = self.policy.lease_cap
        spans = []
        for lease in self.leased.get(name, [])[-KEPT_LEASES:]:
            last = lease.begin + min(lease.seconds, cap)
            last = last if lease.end is None else min(last, lease.end)
            spans.append((max(since, lease.begin), last))
        edges = sorted({edge for span in spans for edge in span})
        pieces = [
            after - before
            for before, after in pairwise(edges)
            if any(begin <= before and after <= end for begin, end in spans)
        ]
        return min(cap, sum(pieces))

    def deadlines(self) -> dict[tuple[str, str, int], float]:
        """When each clock that runs now ends."""
        seen = self.evidence()
        running = turn.clocks_of(self.state, self.policy, seen, self.awareness, self.now)
        return {clock.key: clock.deadline.at or 0.0 for clock in running}

    def note_transition(self, event: Event) -> None:
        if event.from_state == "ADOPTED":
            self.back_at = self.now
            if event.to_state == "STARTING":
                self.started_from = self.now
        if event.cause in {"gate", "platform"}:
            assert self.outside.held, "not let in, and running"
            self.tree_alive = False
        if event.from_state == "FAILED" and event.to_state == "STARTING":
            self.note_coming_back()
        if event.to_state == "HEALTHY" and self.first_ready is None:
            self.first_ready = self.now
        if event.to_state == "UNHEALTHY":
            self.unhealthy_since = self.now
        if event.to_state == "DEAD":
            self.note_death(event)
        self.died = event.to_state == "DEAD" or (self.died and event.to_state != "RESTARTING")

    def note_coming_back(self) -> None:
        """By its platform, or (then a Spawn follows) by the operator."""
        if self.attached and self.begun_by_platform:
            self.tree_alive, self.begun_by_platform = True, False
            self.started_from = self.now

    def note_death(self, event: Event) -> None:
        """Count it; `uptime` is the most that can be said of how long the worker was well."""
        restart = self.policy.restart
        ended = self.now
        if event.cause in {"step", "lease", "scheduler"}:  # a hang is no uptime
            age = event.data["age"]
            assert isinstance(age, float)
            ended -= age
        uptime = 0.0 if self.first_ready is None else ended - self.first_ready
        self.streak = 1 if uptime >= restart.stable else self.streak + 1
        self.deaths.append(Death(self.now, restart.limit, restart.within))
        assert event.from_state in {state.value for state in LIVE}

    def note_suspicions(self) -> None:
        former, self.known = self.known, {}
        self.opened = {s.key for s in self.state.suspicions if s.key not in former}
        starts = [known for (_, cause, _), known in former.items() if cause == "startup"]
        for suspicion in self.state.suspicions:
            known = former.get(suspicion.key)
            if known is None:
                known = Known(self.now, self.policy.window)
                if suspicion.clock.cause == "startup" and starts and not self.state.ready:
                    # The same late start under another name: its first window was given already.
                    known = min(starts, key=lambda start: start.since)
            self.known[suspicion.key] = known

    # What must hold.

    def check_state(self) -> None:
        state = self.state
        assert (state.lifecycle is State.UNHEALTHY) == bool(state.suspicions)
        if state.lifecycle is State.HEALTHY:
            assert state.ready
        if not self.wanted:
            assert state.lifecycle in ENDING | {State.STOPPED} or state.leftovers
        if state.lifecycle in LIVE:
            assert self.tree_alive
            assert self.burial_since is None
        if state.lifecycle is State.RESTARTING:
            assert not self.tree_alive
        if state.leftovers:
            assert state.lifecycle in {State.FAILED, State.STOPPED}

    def check_suspicion(self, suspicion: Suspicion, seen: WorkerEvidence) -> None:
        """It is about something real, and it does not outlive its hard cap."""
        clock = suspicion.clock
        assert clock.hard_cap >= clock.budget
        self.check_cap(suspicion.key, clock.began, clock.hard_cap)
        if clock.cause == "step":
            rank = seen.ranks[clock.subject]
            assert clock.step in rank.steps

    def check_cap(self, key: tuple[str, str, int], began: float, cap: float) -> None:
        """Nothing that began then lives longer than its hard cap, but for its first window."""
        held = key[0] in {*self.leased, *self.outside.leased} or (self.leased and not key[0])
        leased = self.policy.lease_cap if held else 0.0
        rank = self.pages.ranks.get(key[0])
        if key[1] == "step" and rank is not None and rank.page:
            leased += self.policy.drain if rank.phase == "draining" else 0.0
        elif key[1] == "step":  # its beats may tell of an older phase
            leased += self.policy.drain
        known = self.known.get(key)
        first = 0.0 if known is None else known.since + known.window + self.lost(known.since)
        # What is late when it is seen again is so from the next turn on, with a whole window.
        back = self.back_at + turn.HEARTBEAT_SECONDS + self.lost(self.back_at)
        limit = max(began + cap + self.lost(began) + leased, first, back)
        # One that was opened in this very turn is judged in the next, which is due at once.
        assert self.now <= limit + EPSILON or key in self.opened, key

    def check_ranks(self, seen: WorkerEvidence) -> None:
        """The same, asked of the ranks and not of the core's own suspicions."""
        policy, life = self.policy, self.life
        if self.state.lifecycle not in LIVE or life is None or self.outside.held:
            return
        if self.state.lifecycle is State.ADOPTED:
            return
        for name, rank in live_ranks(seen).items():
            if rank.oldest is None or name not in self.state.came_up:
                continue
            step = rank.oldest
            budget = policy.step_budget(step.num_seqs, step.num_tokens).seconds
            if step.number == 1:
                budget = max(budget, policy.first_step)
            self.check_cap((name, "step", step.number), step.begin, policy.step_cap(budget))
        if not self.state.ready:
            late = [name for name, cause, _ in self.known if cause == "startup"]
            for name in late or [""]:
                self.check_cap((name, "startup", 0), self.started_from, policy.startup_cap())

    def check_wait(self, seen: WorkerEvidence) -> None:
        """What waits is not unknown, and for a platform it does not wait for ever."""
        if not seen.held or self.state.lifecycle not in LIVE:
            return
        assert self.state.lifecycle is State.STARTING
        waited = self.now - self.started_from - self.lost(self.started_from)
        assert not self.attached or waited < self.policy.expect_external + EPSILON

    def check_verdict(self, event: Event, before: WorkerState, seen: WorkerEvidence) -> None:
        if event.cause == "step" and event.kind in {Kind.TRANSITION, Kind.SUSPICION}:
            assert event.to_state in {"", "UNHEALTHY", "DEAD"}
            assert seen.ranks[event.rank].steps, "idle, and judged by a step's deadline"
        if event.to_state == "UNHEALTHY":
            self.check_late(event, seen)
        if event.to_state != "DEAD":
            return
        gone = (
            seen.exit is not None
            or seen.spawn_error is not None
            or any(rank.lost and not rank.bye for rank in seen.ranks.values())
        )
        if event.cause in {"exit", "rank_exit", "spawn"}:
            assert gone
            return
        assert not gone
        assert event.from_state == "UNHEALTHY"
        self.check_late(event, seen)
        self.check_condemned(event, before, seen)

    def check_late(self, event: Event, seen: WorkerEvidence) -> None:
        """The deadline has really passed, by the model's own arithmetic; leases only add."""
        policy, life = self.policy, self.life
        assert life is not None
        if event.cause == "startup":
            began = life.ranks[event.rank].attached_at if event.rank else self.started_from
            limit = policy.startup
            ready = self.state.ready or event.from_state == "HEALTHY"  # in this very turn
            began = began if ready else self.started_from
            limit += self.leased_since(event.rank, began)
        elif event.cause == "heartbeat":
            rank = seen.ranks.get(event.rank)
            signs = [rank] if rank else list(seen.ranks.values())
            began = max([life.spawned_at, *(r.beat_at or r.attached_at for r in signs)])
            limit = policy.heartbeat_timeout
        elif event.cause == "step":
            step = seen.ranks[event.rank].steps[0]
            began, limit = step.begin, policy.step_budget(step.num_seqs, None).seconds
            limit += self.leased_since(event.rank, began)
        elif event.cause == "drain":
            rank = seen.ranks[event.rank]
            assert rank.draining
            began, limit = rank.phase_since or 0.0, policy.drain
        elif event.cause == "lease":
            lease = seen.ranks[event.rank].lease
            assert lease is not None
            assert lease.end is None
            began, limit = lease.begin, min(lease.seconds, policy.lease_cap)
        elif event.cause == "progress":
            shown = seen.progress
            assert shown is not None
            assert shown.work_since is not None, "idle, and judged by its progress"
            assert policy.progress_budget is not None
            began, limit = max(shown.moved_at, shown.work_since), policy.progress_budget
        else:
            assert event.cause == "scheduler", event
            work = seen.ranks[event.rank].work
            assert work is not None
            assert work.unfinished > 0
            assert not any(rank.steps for rank in live_ranks(seen).values())
            began, limit = work.since, policy.step_budget(None, None).seconds
        assert self.now - began - self.lost(began) >= limit - EPSILON

    def check_condemned(self, event: Event, before: WorkerState, seen: WorkerEvidence) -> None:
        """Its first window was whole; a rank that visibly works had all of its hard cap."""
        (suspicion,) = [
            s
            for s in before.suspicions
            if (s.clock.subject, s.clock.cause) == (event.rank, event.cause)
            and (s.clock.step.number if s.clock.step else None) == event.data["step"]
        ]
        known = self.known[suspicion.key]
        waited = self.now - known.since - self.lost(known.since)
        assert waited >= known.window - EPSILON, "dead inside its first window"
        assert known.since >= self.adopted_at, "dead of what happened while nobody looked"
        percent = event.data["cpu_percent"]
        rank = self.pages.ranks.get(event.rank)
        stopped = rank is not None and rank.state in {"T", "Z"}
        if isinstance(percent, float) and percent > self.policy.busy_cpu and not stopped:
            age, cap = event.data["age"], event.data["hard_cap"]
            assert isinstance(age, float)
            assert isinstance(cap, float)
            assert age >= cap - EPSILON
        assert seen.exit is None

    def check_restart_budget(self, before: WorkerState, outcome: Outcome) -> None:
        if outcome.state.lifecycle is not State.RESTARTING or before.restart_wanted:
            return
        restart = self.policy.restart
        if self.attached and restart.on == "never":
            return  # its platform counts
        assert self.streak < restart.limit, "restarted beyond its limit of deaths in a row"
        # Deaths that a former policy had the core forget do not count here either.
        within = min([restart.within, *(death.within for death in self.deaths)])
        recent = [death for death in self.deaths if self.now - death.at <= within]
        forgot = any(death.limit < restart.limit for death in recent)
        assert len(recent) < restart.limit or forgot, "restarted beyond its limit within the time"
