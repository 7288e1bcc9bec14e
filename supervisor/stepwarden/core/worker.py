"""What is remembered of one worker, and what one call into the core comes to.

Everything that can happen to a worker goes through one of a few functions: `turn.advance` (a turn
of the loop), `commands.command` (the operator), `commands.regroup` and `give_up` (its group),
`burying.buried` (its tree has been ended, or cannot be), `resume.resume` (a daemon starts), and
those of `reconfigured` (a new configuration). None of them looks at anything but its arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from stepwarden.core import lifecycle, restarts
from stepwarden.core.action import Action, EndTree, Spawn
from stepwarden.core.deadline import Deadline, elapsed
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import ProcessId
from stepwarden.core.finding import Finding
from stepwarden.core.former import Formers
from stepwarden.core.lifecycle import State, Trigger
from stepwarden.core.policy import WorkerPolicy
from stepwarden.core.restarts import Ledger
from stepwarden.core.shadow import Shadow
from stepwarden.core.verdict import Suspicion


@dataclass(frozen=True, slots=True)
class WorkerState:
    """All that is remembered of one worker. Instants in monotonic seconds.

    `came_up`: ranks that are past loading. `silent`: ranks whose page moves without beats.
    `warned`: things said once per life. `leftovers`: processes of the last life that cannot be
    killed; no new life begins beside them. `stop_wanted`: the operator said stop last, which holds
    even when the tree ends much later than it should. `last_death`: why it died last, told also
    in the lives after; "" where it has not. `wish`: the operator's last word, "up" or "down"; ""
    where none was said, and the configuration decides. `give_up`: why its group has given up.
    `held`: why its present life has not begun yet. `former`: policies under which something began
    that still runs. `shadows`: what a rule that only watches holds against it. `finding`: why it is
    late, or why its last life of this daemon ended.
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
    former: Formers = ()
    ledger: Ledger = field(default_factory=Ledger)
    restart_at: Deadline = field(default_factory=Deadline.never)
    restart_wanted: bool = False
    stop_wanted: bool = False
    wish: str = ""
    give_up: str = ""
    held: str = ""
    clean_exit: bool = False
    cause: str = ""
    sentence: str = ""
    last_exit: str = ""
    last_death: str = ""
    leftovers: frozenset[ProcessId] = frozenset()
    deaths: int = 0
    false_alarms: int = 0
    shadows: tuple[Shadow, ...] = ()
    finding: Finding | None = None

    @property
    def life(self) -> str:
        """The present incarnation as events name it; "" before the first."""
        return str(self.incarnation) if self.incarnation else ""

    @property
    def ready(self) -> bool:
        """True once this life was ready."""
        return self.ready_at is not None


@dataclass(frozen=True, slots=True)
class Call:
    """How a function of the core was called: its name, the state, and all else by name."""

    name: str
    state: WorkerState
    arguments: Mapping[str, object]


@dataclass(slots=True)
class Outcome:
    """What one call came to. `refusal` is set when a command was not taken.

    `call`: the call that made it; None where it is a beginning that no state went before.
    """

    state: WorkerState
    actions: list[Action] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    refusal: str | None = None
    call: Call | None = None

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
        former=(),
        restart_at=Deadline.never(),
        restart_wanted=False,
        stop_wanted=False,
        give_up="",
        held="",
        clean_exit=False,
        leftovers=frozenset(),
        shadows=(),
        finding=None,
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
        state,
        ledger=ledger,
        deaths=state.deaths + 1,
        last_death=sentence,
        suspicions=(),
        shadows=(),
    )
    told = f"{sentence}; {then}" if then else sentence
    outcome.move(trigger, now, told, cause, rank, uptime=uptime, **data)
    outcome.actions.append(EndTree(state.incarnation))
