"""Starts a life: what it waits for, what runs before it, and then its process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from stepwarden_proto import page

from stepwarden.config import ConfigError, WorkerConfig
from stepwarden.config.difference import process_marks
from stepwarden.config.expand import at_start
from stepwarden.config.settings import ReleaseGate as GateSettings
from stepwarden.config.settings import ShortCommand
from stepwarden.core.deadline import Deadline
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import ProcessId
from stepwarden.core.lifecycle import ENDING
from stepwarden.core.policy import AGENT_NONE
from stepwarden.daemon.holding import Holds
from stepwarden.daemon.hooks import Hooks
from stepwarden.daemon.life import Life
from stepwarden.daemon.runners import ATTACH, Runner, Runners
from stepwarden.daemon.unit import Unit
from stepwarden.daemon.watching import Watching
from stepwarden.edge.aside import Aside
from stepwarden.edge.begun import Begun
from stepwarden.edge.host import this_host
from stepwarden.edge.launch_spec import without_our_user
from stepwarden.edge.launcher import LaunchSpec, SpawnFailed
from stepwarden.edge.page_home import make_page_dir
from stepwarden.edge.port_holders import Port
from stepwarden.edge.release_gate import ReleaseGate, wait_released
from stepwarden.edge.short_command import Ended, RunShort, ShortSpec
from stepwarden.edge.state_records import LifeRecord
from stepwarden.edge.state_store import StateStore
from stepwarden.edge.users import Owner, closed_to, look_up

LOOK_AGAIN_SECONDS = 1.0
"""What a start waits for is looked at again this often even where nobody tells of a change."""

READ_SECONDS = 10.0
"""Files and directories that a start has to read may lie on a file system that hangs."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every life of this daemon shares: where pages lie, and the environment it begins with.

    `target_for`: where the agents of this user's processes beat to. `going_down`: whether the host
    is.
    """

    page_home: Path
    environ: Mapping[str, str]
    target_for: Callable[[int], str]
    going_down: Callable[[], Awaitable[bool]]


class Starter:
    """Takes lives from their begin to a running process.

    `born`: told when it runs.
    """

    def __init__(
        self,
        runners: Runners,
        store: StateStore,
        around: Surroundings,
        holds: Holds,
        watching: Watching,
        run_short: RunShort,
        hooks: Hooks,
    ) -> None:
        self._runners = runners
        self._store = store
        self._around = around
        self._holds = holds
        self._watching = watching
        self._run_short = run_short
        self._clock = hooks.clock
        self._note = hooks.note
        self._poke = hooks.poke
        self.born: Callable[[Unit, Life, Begun], None] = _nobody
        self.nobodys: list[asyncio.Task[None]] = []
        """Lives of workers that the configuration no longer names; starts wait for their end."""

    async def start(self, unit: Unit, life: Life) -> None:
        """Start it; whatever goes wrong is in the life, as `spawn_error` or `shut`."""
        try:
            waited = await self._wait_for_turn(unit, life)
            if await self._around.going_down():
                raise SpawnFailed("the host is going down; nothing is started any more")
            config = life.config = await self._present(unit, life)
            life.marks = process_marks(config)
            runner = self._runners.by_kind(life.runner)
            waited |= await self._before(config, life, unit)
            if not life.shut:
                await self._launch(unit, life, config, runner, waited)
        except (SpawnFailed, ConfigError, OSError, ValueError) as error:
            life.spawn_error = " ".join(str(error).split())
        except Exception as error:  # else it would wait for ever, without a word
            life.spawn_error = f"a fault of ours: {type(error).__name__}: {error}"
        life.held = life.held if life.main is None and not life.spawn_error else ""
        self._poke(unit)

    async def _present(self, unit: Unit, life: Life) -> WorkerConfig:
        """Its configuration when all of its files have been read; a reload may come meanwhile."""
        while True:
            asked = unit.config
            config = await self.as_it_is_now(asked)
            if unit.config is asked or (life.adopted and life.outdated):
                return config

    async def as_it_is_now(self, config: WorkerConfig) -> WorkerConfig:
        """With its env files read and variables replaced. Raises ConfigError, SpawnFailed."""
        if not config.env_files:
            return at_start(config, self._around.environ)  # there is no file to wait for
        deadline = Deadline.after(self._clock.monotonic(), READ_SECONDS)
        try:
            return await Aside(self._clock).call(
                lambda: at_start(config, self._around.environ), deadline
            )
        except OSError as error:  # TimeoutError is one
            raise SpawnFailed(f"cannot read what its configuration names: {error}") from None

    def watch(self, unit: Unit, life: Life, config: WorkerConfig) -> None:
        """Look at a life that runs from outside, as its configuration says."""
        self._watching.begin(unit, life, config, self._command)

    def watch_anew(self, unit: Unit, life: Life) -> None:
        """Its configuration says otherwise now how a life that runs is looked at from outside."""
        self._watching.end(life)
        life.progress = None
        if life.config is not None:
            self.watch(unit, life, life.config)

    async def watch_again(self, unit: Unit, life: Life) -> None:
        """Look at a life that was started before us."""
        config = unit.config
        try:
            config = await self._present(unit, life)
        except (ConfigError, SpawnFailed, OSError) as error:
            text = f"what is looked at from outside may be incomplete: {error}"
            self._tell(life, " ".join(text.split()), Kind.DAEMON)
        else:
            life.config = config
        if unit.life is life and unit.state.lifecycle not in ENDING:
            self.watch(unit, life, config)

    # What it waits for

    async def _wait_for_turn(self, unit: Unit, life: Life) -> bool:
        """True where it had to wait, so that its clocks begin later."""
        waited = False
        if ending := [task for task in self.nobodys if not task.done()]:
            waited = True
            self._hold(unit, life, "waits for the end of workers that are not configured any more")
            await asyncio.wait(ending)
        while reason := self._holds.reason(unit):
            waited = True
            self._hold(unit, life, reason)
            await self._change()
        unit.after = ()  # all of them have ended
        return waited

    async def _change(self) -> None:
        change = asyncio.ensure_future(self._holds.next_change())
        try:
            await asyncio.wait({change}, timeout=LOOK_AGAIN_SECONDS)
        finally:
            change.cancel()

    def _hold(self, unit: Unit, life: Life, reason: str) -> None:
        if life.held != reason:
            life.held = reason
            self._poke(unit)

    async def _before(self, config: WorkerConfig, life: Life, unit: Unit) -> bool:
        """The command before the start, then the gate; True where that took time.

        In this order, for such commands clear away what holds names and ports (docker rm -f).
        """
        gate, command = config.release, config.pre_start
        if command is not None:
            self._hold(unit, life, f"runs its pre_start command {command.argv[0]}")
            ended = await self.run(config, command)
            if not ended.ok and not command.ignore_failure:
                raise SpawnFailed(f"pre_start {ended.sentence}")
            self._tell(life, f"pre_start {ended.sentence}")
        if gate is not None:
            # Not shown before there is anything to wait for, unless a command may take its time.
            if gate.command:
                self._hold(unit, life, f"asks its release command {gate.command[0]}")
            reason = await wait_released(
                self._gate(config, gate),
                self._run_short,
                self._clock,
                lambda text: self._hold(unit, life, text),
            )
            if reason:
                life.shut = f"not started (release): {reason}"
        return gate is not None or command is not None

    async def run(self, config: WorkerConfig, command: ShortCommand) -> Ended:
        """Run one of the worker's own short commands, as its user and in its directory."""
        return await self._run_short(
            ShortSpec(self._command(config, command.argv), command.timeout)
        )

    def _gate(self, config: WorkerConfig, gate: GateSettings) -> ReleaseGate:
        command = None
        if gate.command:
            command = ShortSpec(self._command(config, gate.command), gate.limit)
        ports = tuple(Port(number) for number in gate.ports)
        files = tuple(map(str, gate.files))
        return ReleaseGate(ports, files, command, gate.limit)

    def _command(self, config: WorkerConfig, argv: tuple[str, ...]) -> LaunchSpec:
        run_as, env = config.run_as, self._environment(config)
        return LaunchSpec(
            argv, env, config.cwd, user=run_as.user, group=run_as.group, umask=run_as.umask
        )

    # The start itself

    async def _launch(
        self, unit: Unit, life: Life, config: WorkerConfig, runner: Runner, waited: bool
    ) -> None:
        life.launching = True
        life.held = ""
        if waited:
            life.began_at = self._clock.monotonic()
        if await self._around.going_down():
            raise SpawnFailed("the host is going down; nothing is started any more")
        owner = await self._owner(config)
        if config.policy.agent != AGENT_NONE:
            await self._warn_of_closed_ways(life, owner)
        if life.runner != ATTACH:
            make_page_dir(life.page_dir, owner.uid, owner.gid)
        try:
            runner.reserve(life)
            await self.write_down(life)
            begun = await runner.start(life, config, self._own_environment(life, config, owner))
        except BaseException:
            runner.release(life)
            raise
        self.born(unit, life, begun)
        if life.runner != ATTACH:  # else there is nothing to look at before it comes
            self.watch(unit, life, config)
        self._poke(unit)
        await self.write_down(life)

    async def _owner(self, config: WorkerConfig) -> Owner:
        if config.attach is not None:
            return await look_up(config.attach.expect_user, None, self._clock)
        return await look_up(config.run_as.user, config.run_as.group, self._clock)

    async def _warn_of_closed_ways(self, life: Life, owner: Owner) -> None:
        """Where the agent of another user cannot come to us, nobody else would say why."""
        target = self._around.target_for(owner.uid)
        if owner.uid == os.geteuid() or not target.startswith("unix:"):
            return
        for place in (Path(target.removeprefix("unix:")).parent, self._around.page_home):
            closed = await self._closed_to(owner, place)
            if closed:
                text = f"user {owner.uid} cannot pass {closed}: its agent cannot reach us"
                self._tell(life, text, Kind.REFUSED)
                return

    async def _closed_to(self, owner: Owner, place: Path) -> str:
        deadline = Deadline.after(self._clock.monotonic(), READ_SECONDS)
        try:
            return await Aside(self._clock).call(lambda: closed_to(owner, place), deadline)
        except OSError:  # TimeoutError is one; it cannot be told
            return ""

    async def write_down(self, life: Life) -> None:
        """Note the life for the next daemon. A full or broken disk stops no worker."""
        noted = await self._store.note_life(record_of(life))
        if not noted:
            text = f"this life could not be noted ({noted.reason}):"
            text += " a daemon that comes after a crash of this one would not know of it"
            self._tell(life, text, Kind.DAEMON)

    async def note_adopted(self, life: Life) -> None:
        """Note what was found out of a life at its adoption alone, such as its pid by its marks.

        The next daemon may come when the process that told it is gone.
        """
        if record_of(life) not in self._store.lives():
            await self.write_down(life)

    def _tell(self, life: Life, text: str, kind: Kind = Kind.STARTED) -> None:
        self._note(Event(kind, text, life.worker, str(life.incarnation)))

    def _environment(self, config: WorkerConfig) -> dict[str, str]:
        base = self._around.environ
        if config.run_as.user is not None:
            base = without_our_user(base)
        return config.environment(base)

    def _own_environment(self, life: Life, config: WorkerConfig, owner: Owner) -> dict[str, str]:
        return self._environment(config) | {
            page.ENV_WORKER: life.worker,
            page.ENV_INCARNATION: life.name,
            page.ENV_TARGET: self._around.target_for(owner.uid),
            page.ENV_TOKEN: life.token,
            page.ENV_PAGE_DIR: str(life.page_dir),
            page.ENV_INTERVAL: f"{config.heartbeat_interval:g}",
        }


def _nobody(_unit: Unit, _life: Life, _begun: Begun) -> None:
    """Nobody is told before the actor is there."""


def record_of(life: Life) -> LifeRecord:
    """What the store keeps of a life."""
    nobody = ProcessId(0, 0)
    process, launcher = life.main or nobody, life.launcher or nobody
    if life.main is not None:
        launcher = nobody
    return LifeRecord(
        life.worker,
        life.name,
        this_host().boot,
        life.runner,
        str(life.page_dir),
        life.token,
        life.spawned_at,
        process.pid,
        process.start_ticks,
        life.cgroup,
        life.unit,
        life.marks,
        launcher.pid,
        launcher.start_ticks,
    )
