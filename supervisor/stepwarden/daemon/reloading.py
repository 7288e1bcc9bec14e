"""Loads the configuration file again: all of it or nothing, one reload after the other.

The file is read and checked in a thread, compared with what is in force, and what may fail (an
address that cannot be bound, a runner that this host does not have) is done before anything is
touched. Then everything is applied in one turn of the loop. A file that cannot be used changes
nothing but what is said of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stepwarden.clock import Clock
from stepwarden.config import Config, ConfigError, load
from stepwarden.config.difference import difference, process_marks
from stepwarden.core.deadline import Deadline
from stepwarden.core.event import Event, Kind
from stepwarden.daemon.plan import Plan, Wanted, plan
from stepwarden.daemon.sockets import other_users
from stepwarden.daemon.unit import Unit
from stepwarden.edge.aside import Aside
from stepwarden.edge.config_watch import TRIGGER as BY_WATCH
from stepwarden.edge.reload_views import (
    MAX_PROBLEMS,
    ConfigView,
    Effect,
    ReloadChange,
    ReloadCounts,
    ReloadOutcome,
)
from stepwarden.errors import StepwardenError

READ_SECONDS = 30.0
"""Reading and checking may take so long: thousands of workers take seconds."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a file wants that can be used, and as which other users its workers run."""

    wanted: Wanted
    users: tuple[int, ...]

    @property
    def config(self) -> Config:
        """The configuration itself."""
        return self.wanted.config


@dataclass(frozen=True, slots=True)
class ReloadHooks:
    """What reloading needs of the daemon.

    `closed`: why nothing is reloaded now, "" otherwise. `objection`: why this host cannot run what
    a configuration names. `bind`: listens for the agents of further users. `apply`: makes a
    configuration hold. `begins`, `ended`: tell the service manager. `read`: hears the identity of
    each content that was read.
    """

    units: dict[str, Unit]
    clock: Clock
    note: Callable[[Event], None]
    closed: Callable[[], str]
    objection: Callable[[Config], str]
    bind: Callable[[Sequence[int]], Awaitable[None]]
    apply: Callable[[Config, Plan], None]
    begins: Callable[[], object]
    ended: Callable[[], object]
    read: Callable[[str], None]


class Reloader:
    """Reloads. `config` is what is in force; `counts` what metrics show."""

    def __init__(self, config: Config, hooks: ReloadHooks) -> None:
        self.config = config
        self._hooks = hooks
        self._path = Path(config.path).absolute()
        self._files = Aside(hooks.clock)
        self._one_at_a_time = asyncio.Lock()
        self._next: asyncio.Task[ReloadOutcome] | None = None
        self._tasks: set[asyncio.Task[ReloadOutcome]] = set()
        self._triggers: list[str] = []
        self._loaded_at = self._wall()
        self._failed_at = self._failure = ""
        self.counts = ReloadCounts(hooks.clock.wall().timestamp())

    async def reload(self, trigger: str, dry_run: bool = False) -> ReloadOutcome:
        """Load the file again; `trigger` says for the log who wants it.

        Triggers that come while one is under way share one more, which reads the file after the
        last of them. `dry_run`: only say what would happen. Never raises for a bad file.
        """
        if dry_run:
            async with self._one_at_a_time:
                return await self._dry_run()
        self._triggers.append(trigger)
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._run_next())
            self._tasks.add(self._next)
            self._next.add_done_callback(self._tasks.discard)
        # Whoever asked may leave; the reload goes on.
        return await asyncio.shield(self._next)

    def view(self) -> ConfigView:
        """What is in force, and what came of the last attempt."""
        return ConfigView(str(self._path), self._loaded_at, self._failed_at, self._failure)

    async def close(self) -> None:
        """Nothing is applied any more; what waits or is under way is given up."""
        ending = list(self._tasks)
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending)

    async def _run_next(self) -> ReloadOutcome:
        async with self._one_at_a_time:
            # From here on the file may be read before a new trigger's edit: that one needs another.
            self._next, triggers, self._triggers = None, self._triggers, []
            self._hooks.begins()
            try:
                outcome = await self._reload(triggers)
            finally:
                self._hooks.ended()
            return outcome

    async def _reload(self, triggers: list[str]) -> ReloadOutcome:
        try:
            loaded = await self._load()
            await self._prepare(loaded)
            # Nothing is awaited from here on.
            changes = self._apply(loaded)
        except ConfigError as error:
            return await self._failed(triggers, [str(problem) for problem in error.problems])
        except (StepwardenError, OSError) as error:
            return await self._failed(triggers, [str(error)])
        except Exception as error:  # a fault of ours must not end reloading for ever
            return await self._failed(triggers, [_our_fault(error)])
        return await self._succeeded(triggers, loaded.config, changes)

    async def _dry_run(self) -> ReloadOutcome:
        try:
            loaded = await self._load()
            self._object(loaded)
            changes = plan(loaded.wanted, self._hooks.units).changes
            sentence = f"dry run: {summary(changes)}; nothing is done"
            return ReloadOutcome(False, changes, (), sentence, _warnings(loaded.config))
        except ConfigError as error:
            problems = [str(problem) for problem in error.problems]
        except (StepwardenError, OSError) as error:
            problems = [str(error)]
        except Exception as error:  # who asks gets one line of it, as with a reload
            problems = [_our_fault(error)]
        return _refused(problems, "dry run: the file cannot be used")

    async def _load(self) -> Loaded:
        deadline = Deadline.after(self._hooks.clock.monotonic(), READ_SECONDS)
        try:
            loaded = await self._files.call(self._read, deadline)
        except TimeoutError as error:
            raise StepwardenError(f"{self._path} cannot be read: {error}") from None
        except ConfigError as error:
            self._hooks.read(error.identity)
            raise
        self._hooks.read(loaded.config.identity)
        return loaded

    def _read(self) -> Loaded:
        """In a thread."""
        config = load(self._path)
        users = tuple(other_users(config.workers.values(), self._hooks.clock))
        marks = {name: process_marks(worker) for name, worker in config.workers.items()}
        return Loaded(Wanted(config, difference(self.config, config), marks), users)

    def _object(self, loaded: Loaded) -> None:
        """Raises StepwardenError where the file is good and cannot be applied here and now."""
        if closed := self._hooks.closed():
            raise StepwardenError(f"the supervisor is {closed}")
        if refused := loaded.wanted.differs.refused:
            keys = ", ".join(f"supervisor.{change.key}" for change in refused)
            raise StepwardenError(f"needs a restart of the daemon: {keys}")
        if objection := self._hooks.objection(loaded.config):
            raise StepwardenError(objection)

    async def _prepare(self, loaded: Loaded) -> None:
        self._object(loaded)
        await self._hooks.bind(loaded.users)
        self._object(loaded)  # the daemon may have been told to end meanwhile

    def _apply(self, loaded: Loaded) -> tuple[ReloadChange, ...]:
        planned = plan(loaded.wanted, self._hooks.units)
        if planned.changes:
            self._hooks.apply(loaded.config, planned)
        self.config = loaded.config
        return planned.changes

    async def _succeeded(
        self, triggers: list[str], config: Config, changes: tuple[ReloadChange, ...]
    ) -> ReloadOutcome:
        self._loaded_at, self._failed_at, self._failure = self._wall(), "", ""
        self.counts.succeeded += 1
        self.counts.succeeded_at = self._hooks.clock.wall().timestamp()
        self.counts.last_failed = False
        text = f"configuration reloaded: {summary(changes)}"
        # A touched file is nothing to tell of; an operator who asked is answered.
        if changes or any(trigger != BY_WATCH for trigger in triggers):
            await self._tell(Kind.RELOADED, f"{text} ({_all(triggers)})", changes)
        return ReloadOutcome(True, changes, (), text, _warnings(config))

    async def _failed(self, triggers: list[str], problems: list[str]) -> ReloadOutcome:
        self.counts.failed += 1
        self.counts.last_failed = True
        self._failed_at, self._failure = self._wall(), _first(problems)
        text = "reload failed, the old configuration stays whole"
        await self._tell(Kind.RELOAD_FAILED, f"{text}: {self._failure} ({_all(triggers)})")
        return _refused(problems, text)

    async def _tell(self, kind: Kind, text: str, changes: Sequence[ReloadChange] = ()) -> None:
        """One event for the whole and one for each worker, with room for beats in between."""
        counted = {effect.value: _count(changes, effect) for effect in Effect if changes}
        self._hooks.note(Event(kind, text, data=counted))
        for change in changes:
            if change.worker:
                await asyncio.sleep(0)
                self._hooks.note(Event(kind, change.sentence, change.worker))

    def _wall(self) -> str:
        return self._hooks.clock.wall().isoformat(timespec="seconds")


def summary(changes: Sequence[ReloadChange]) -> str:
    """What a reload does, in one line."""
    counts = [(effect, _count(changes, effect)) for effect in Effect]
    others = sum(1 for change in changes if not change.worker)
    told = [f"{count} {_WORDS[effect]}" for effect, count in counts if count]
    if others:
        told.append("supervisor or groups changed")
    return ", ".join(told) or "no difference"


_WORDS = {
    Effect.ADDED: "added",
    Effect.REMOVED: "removed",
    Effect.RESTARTED: "restarted",
    Effect.RESTART_NEEDED: "waiting for a restart",
    Effect.ADJUSTED: "adjusted",
}


def _count(changes: Sequence[ReloadChange], effect: Effect) -> int:
    return sum(1 for change in changes if change.effect is effect and change.worker)


def _refused(problems: list[str], sentence: str) -> ReloadOutcome:
    shown = problems[:MAX_PROBLEMS]
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown)} more")
    return ReloadOutcome(False, (), tuple(shown), sentence)


def _first(problems: list[str]) -> str:
    first = " ".join(problems[0].split()) if problems else "no reason is known"
    return f"{first} (and {len(problems) - 1} more)" if len(problems) > 1 else first


def _warnings(config: Config) -> tuple[str, ...]:
    return tuple(map(str, config.warnings[:MAX_PROBLEMS]))


def _all(triggers: list[str]) -> str:
    return ", ".join(dict.fromkeys(triggers))


def _our_fault(error: Exception) -> str:
    return f"a fault of ours: {type(error).__name__}: {error}"
