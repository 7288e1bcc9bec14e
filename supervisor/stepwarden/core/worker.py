"""One worker through one turn of the loop: (state, evidence, now) -> (state, actions, events).

Everything that can happen to a worker goes through one of four functions here: `advance` (a turn
of the loop), `command` (the operator), `buried` (its tree has been ended, or cannot be), and
`initial`. None of them looks at anything but its arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from stepwarden.core import lifecycle, restarts, sentences
from stepwarden.core.action import Action, EndTree, Spawn
from stepwarden.core.deadline import Deadline, elapsed
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import ProcessId
from stepwarden.core.lifecycle import State, Trigger
from stepwarden.core.policy import WorkerPolicy
from stepwarden.core.restarts import Ledger
from stepwarden.core.verdict import Suspicion


@dataclass(frozen=True, slots=True)
class WorkerState:
    """All that is remembered of one worker. Instants in monotonic seconds.

    `came_up`: ranks that are past loading. `silent`: ranks whose page moves without beats.
    `warned`: things said once per life. `leftovers`: processes of the last life that cannot be
    killed; no new life begins beside them. `stop_wanted`: the operator said stop last, which holds
    even when the tree ends much later than it should. `last_death`: why it died last, told also
    in the lives after; "" where it has not.
    """

    name: str
    lifecycle: State = State.STOPPED
    since: float = 0.0
    incarnation: int = 0
    spawned_at: float = 0.0
    ready_at: float | None = None
    came_up: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    warned: frozenset[str] = frozenset()
    suspicions: tuple[Suspicion, ...] = ()
    ledger: Ledger = field(default_factory=Ledger)
    restart_at: Deadline = field(default_factory=Deadline.never)
    restart_wanted: bool = False
    stop_wanted: bool = False
    clean_exit: bool = False
    cause: str = ""
    sentence: str = ""
    last_exit: str = ""
    last_death: str = ""
    leftovers: frozenset[ProcessId] = frozenset()
    deaths: int = 0
    false_alarms: int = 0

    @property
    def life(self) -> str:
        """The present incarnation as events name it; "" before the first."""
        return str(self.incarnation) if self.incarnation else ""

    @property
    def ready(self) -> bool:
        """True once this life was ready."""
        return self.ready_at is not None


@dataclass(slots=True)
class Outcome:
    """What one call came to. `refusal` is set when a command was not taken."""

    state: WorkerState
    actions: list[Action] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    refusal: str | None = None

    def note(
        self,
        kind: Kind,
        sentence: str,
        cause: str = "",
        rank: str = "",
        **data: float | str | None,
    ) -> None:
        """Add an event that changes no state."""
        self.events.append(
            Event(
                kind,
                sentence,
                self.state.name,
                self.state.life,
                cause=cause,
                rank=rank,
                data=data,
            )
        )

    def move(
        self,
        trigger: Trigger,
        now: float,
        sentence: str,
        cause: str = "",
        rank: str = "",
        **data: float | str | None,
    ) -> bool:
        """Go where the table says, and note it; False when the table says stay put."""
        origin = self.state.lifecycle
        target = lifecycle.step(origin, trigger)
        if target is origin:
            return False
        self.state = replace(
            self.state, lifecycle=target, since=now, cause=cause, sentence=sentence
        )
        self.events.append(
            Event(
                Kind.TRANSITION,
                sentence,
                self.state.name,
                self.state.life,
                origin.value,
                target.value,
                cause,
                rank,
                data,
            )
        )
        return True


def initial(
    policy: WorkerPolicy, now: float, *, left_behind: bool = False, incarnation: int = 0
) -> Outcome:
    """A worker that the configuration names, when the daemon starts.

    `left_behind`: an earlier daemon died and its processes may still live; these are ended first.
    `incarnation`: that of its last life under an earlier daemon, 0 where none is known of.
    """
    outcome = Outcome(WorkerState(policy.name, since=now, incarnation=incarnation))
    if left_behind:
        text = "an earlier daemon left its processes behind; they are ended first"
        outcome.state = replace(
            outcome.state,
            lifecycle=State.STOPPING,
            restart_wanted=policy.autostart,
            stop_wanted=not policy.autostart,
            sentence=text,
        )
        outcome.note(Kind.BURIAL, text)
        outcome.actions.append(EndTree(incarnation))
    elif policy.autostart:
        begin_life(outcome, Trigger.START, now, "started with the daemon")
    return outcome


def begin_life(outcome: Outcome, trigger: Trigger, now: float, sentence: str) -> None:
    """Enter STARTING with a new incarnation; nothing of the last life is kept but the counters."""
    outcome.state = replace(
        outcome.state,
        incarnation=outcome.state.incarnation + 1,
        spawned_at=now,
        ready_at=None,
        came_up=frozenset(),
        silent=frozenset(),
        warned=frozenset(),
        suspicions=(),
        restart_at=Deadline.never(),
        restart_wanted=False,
        stop_wanted=False,
        clean_exit=False,
        leftovers=frozenset(),
    )
    if outcome.move(trigger, now, sentence):
        outcome.actions.append(Spawn(outcome.state.incarnation))


def die(
    outcome: Outcome,
    trigger: Trigger,
    policy: WorkerPolicy,
    now: float,
    sentence: str,
    cause: str,
    rank: str = "",
    *,
    well_until: float,
    then: str,
    **data: float | str | None,
) -> None:
    """Enter DEAD: count the death and have the whole tree ended.

    `sentence`: why it died. `then`: what is done now, "" for nothing worth telling.
    `well_until`: the end of its uptime, before whatever went wrong began.
    """
    state = outcome.state
    uptime = 0.0 if state.ready_at is None else elapsed(state.ready_at, well_until)
    ledger = restarts.record_death(state.ledger, policy.restart, uptime, now)
    outcome.state = replace(
        state, ledger=ledger, deaths=state.deaths + 1, last_death=sentence, suspicions=()
    )
    told = f"{sentence}; {then}" if then else sentence
    outcome.move(trigger, now, told, cause, rank, **data)
    outcome.actions.append(EndTree(state.incarnation))


def command(state: WorkerState, word: str, now: float, by: str = "the operator") -> Outcome:
    """Somebody (`by`) says `start`, `stop` or `restart`."""
    outcome = Outcome(state)
    if word != "stop" and state.leftovers:
        pids = ", ".join(str(process.pid) for process in sorted(state.leftovers))
        outcome.refusal = f"processes of its last life cannot be killed: {pids}"
        return outcome
    outcome.note(Kind.OPERATOR, f"{by} says {word}")
    {"start": _start, "stop": _stop, "restart": _restart}[word](outcome, now, by)
    return outcome


def _start(outcome: Outcome, now: float, by: str) -> None:
    state = outcome.state
    if state.lifecycle is State.STOPPING:
        outcome.state = replace(state, restart_wanted=True, stop_wanted=False, ledger=Ledger())
    elif state.lifecycle is State.DEAD:
        _restart(outcome, now, by)
    elif state.lifecycle in lifecycle.RESTING or state.lifecycle is State.RESTARTING:
        outcome.state = replace(state, ledger=Ledger())
        begin_life(outcome, Trigger.START, now, f"started by {by}")


def _stop(outcome: Outcome, now: float, by: str) -> None:
    state = outcome.state
    outcome.state = replace(state, restart_wanted=False, stop_wanted=True, suspicions=())
    moved = outcome.move(Trigger.STOP, now, f"stopped by {by}")
    if moved and state.lifecycle in lifecycle.LIVE:
        outcome.actions.append(EndTree(state.incarnation))


def _restart(outcome: Outcome, now: float, by: str) -> None:
    state = outcome.state
    if state.lifecycle not in lifecycle.LIVE | {State.DEAD}:
        _start(outcome, now, by)
        return
    outcome.state = replace(state, restart_wanted=True, ledger=Ledger(), suspicions=())
    outcome.move(Trigger.RESTART, now, f"restart asked for by {by}")
    if state.lifecycle in lifecycle.LIVE:
        outcome.actions.append(EndTree(state.incarnation))


def buried(
    state: WorkerState,
    policy: WorkerPolicy,
    leftovers: frozenset[ProcessId],
    now: float,
    spread: float,
) -> Outcome:
    """The tree of the present life has been ended, all but `leftovers`.

    `spread` in -1..1 is the luck of the draw for the restart delay. A report for a worker whose
    tree is not being ended, and of which nothing was left, is an old one and changes nothing.
    """
    if state.lifecycle not in lifecycle.ENDING and not state.leftovers:
        return Outcome(state)
    outcome = Outcome(replace(state, leftovers=leftovers))
    if leftovers:
        _stuck(outcome, leftovers, now)
    elif state.lifecycle is State.STOPPING and state.restart_wanted:
        begin_life(outcome, Trigger.TURNED_OVER, now, "every process is gone; started again")
    elif state.lifecycle is State.STOPPING:
        outcome.move(Trigger.ENDED, now, f"{state.sentence}; every process is gone")
    elif state.lifecycle is State.DEAD:
        _after_burial(outcome, policy, now, spread)
    elif state.lifecycle is State.FAILED:
        _freed(outcome, policy, now, spread)
    return outcome


def _stuck(outcome: Outcome, leftovers: frozenset[ProcessId], now: float) -> None:
    pids = ", ".join(str(process.pid) for process in sorted(leftovers))
    outcome.move(
        Trigger.UNKILLABLE,
        now,
        f"leftover pids {pids} do not end, not even by KILL; nothing is started beside them",
        cause="unkillable",
        leftovers=pids,
    )


def _freed(outcome: Outcome, policy: WorkerPolicy, now: float, spread: float) -> None:
    """What could not be killed is gone at last: do what was to be done then."""
    state = outcome.state
    unwanted = not restarts.wants_restart(policy.restart, state.clean_exit)
    if state.stop_wanted or (unwanted and not state.restart_wanted):
        text = "every process is gone at last; not started again"
        outcome.move(Trigger.FREED_UNWANTED, now, text)
    elif restarts.spent(state.ledger, policy.restart, now):
        # It stays FAILED; what changes is the reason, and that the operator may start it.
        text = _gave_up(state, policy, now)
        outcome.state = replace(state, sentence=text)
        outcome.note(Kind.BURIAL, f"every process is gone at last; {text}")
    else:
        _delay_restart(outcome, policy, now, spread, Trigger.FREED)


def _after_burial(outcome: Outcome, policy: WorkerPolicy, now: float, spread: float) -> None:
    state = outcome.state
    if not restarts.wants_restart(policy.restart, state.clean_exit):
        text = f"every process is gone; not started again, restart.on is {policy.restart.on}"
        text += _last(state)
        outcome.move(Trigger.BURIED_UNWANTED, now, text, state.cause)
    elif restarts.spent(state.ledger, policy.restart, now):
        text = _gave_up(state, policy, now)
        outcome.move(Trigger.BURIED_SPENT, now, text, state.cause)
    else:
        _delay_restart(outcome, policy, now, spread, Trigger.BURIED)


def _gave_up(state: WorkerState, policy: WorkerPolicy, now: float) -> str:
    used = state.ledger.used(policy.restart, now)
    return f"gave up after {used} deaths (restart.limit {policy.restart.limit}){_last(state)}"


def _last(state: WorkerState) -> str:
    return f"; last: {state.last_death}" if state.last_death else ""


def _delay_restart(
    outcome: Outcome, policy: WorkerPolicy, now: float, spread: float, trigger: Trigger
) -> None:
    state = outcome.state
    used = state.ledger.used(policy.restart, now)
    wait = restarts.delay(state.ledger, policy.restart, spread)
    outcome.state = replace(state, restart_at=Deadline.after(now, wait))
    text = (
        f"every process is gone; next start in {sentences.seconds(wait)},"
        f" {used} of {policy.restart.limit} deaths used{_last(state)}"
    )
    outcome.move(trigger, now, text, state.cause, delay=wait)
