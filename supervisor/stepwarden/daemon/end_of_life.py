"""One ending of a worker, step by step: what is done is done once, whatever fails after it.

    the start     given up where it waits, seen to its end where it is under way
    proof         what only the living tree can tell is captured, within its limit
    by command    the operator's own stop command
    by its runner what a runner does first (`systemctl stop` of a unit of the operator's)
    burial        every process, until not one is left
    let go        of a start that failed: whoever was to run it must not come up with it later
    closed        the life is forgotten, and what was left behind by an earlier daemon

A step that fails is tried again by whoever owns this; those before it are not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from stepwarden.clock import Clock
from stepwarden.config import ConfigError, WorkerConfig
from stepwarden.core.burying import ALL_GONE, spares
from stepwarden.core.deadline import Deadline, clamp_timeout
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import ProcessId
from stepwarden.daemon.attached import OUT_OF_REACH, out_of_reach
from stepwarden.daemon.endings import Endings, Whose
from stepwarden.daemon.life import Life
from stepwarden.daemon.pauses import Pauses
from stepwarden.daemon.runners import Runners
from stepwarden.daemon.starting import Starter
from stepwarden.daemon.unit import Unit
from stepwarden.daemon.watching import Watching
from stepwarden.edge.launcher import SpawnFailed

LOOK_AGAIN_SECONDS = 0.25
"""What is only observed is looked at so often while it may still end by itself."""

Step = Callable[[], Awaitable[None]]


class EndOfLife:
    """Ends all there is of a worker: its present life and what was left behind of it.

    `left`: told of what cannot be killed, after each try. `close`: forgets the life. `gone`: what
    has become of it, in words, when all is over.
    """

    def __init__(
        self,
        unit: Unit,
        starter: Starter,
        runners: Runners,
        endings: Endings,
        watching: Watching,
        clock: Clock,
        note: Callable[[Event], None],
        left: Callable[[frozenset[ProcessId]], None],
        close: Callable[[Life], Awaitable[None]],
    ) -> None:
        self._unit = unit
        self._life = unit.life
        self._config = unit.running_config
        self._starter = starter
        self._runners = runners
        self._endings = endings
        self._watching = watching
        self._clock = clock
        self._note = note
        self._left = left
        self._close = close
        self._ordered_at = clock.monotonic()
        self._steps: list[Step] = [
            self._end_start,
            self._keep_proof,
            self._by_command,
            self._by_runner,
            self._bury,
            self._let_go,
            self._close_life,
            self._forget_inherited,
        ]
        self.gone = ALL_GONE

    async def run(self) -> None:
        """Do what is not done yet. Whatever a step raises passes; call it again then."""
        while self._steps:
            await self._steps[0]()
            del self._steps[0]

    def ordered_anew(self) -> None:
        """What was seen of its tree before now is no evidence any more."""
        self._ordered_at = self._clock.monotonic()

    @property
    def _spared(self) -> bool:
        """Whether it is only watched now until it is gone: it is observed."""
        return spares(self._unit.state, self._unit.policy)

    @property
    def _launched(self) -> Life | None:
        """The life, where its start had come so far that there may be something of it."""
        life = self._life
        return life if life is not None and life.launching else None

    async def _end_start(self) -> None:
        life = self._life
        if life is None:
            return
        if life.spawning is not None and not life.spawning.done():
            if not life.launching:
                life.spawning.cancel()
            await asyncio.wait({life.spawning})
            self.ordered_anew()
        self._watching.end(life)

    async def _keep_proof(self) -> None:
        """A fault in it must not leave a dead worker as it is."""
        try:
            await self._endings.before(self._unit)
        except Exception as error:
            self._tell(f"its proof could not be kept: {type(error).__name__}: {error}")

    async def _by_command(self) -> None:
        """Also for what was left behind. Whatever comes of it, the tree is ended afterwards."""
        unit = self._unit
        ran = self._launched is not None or bool(self._endings.inherited(unit.config.name))
        if not ran or self._config.stop_command is None or self._spared:
            return
        config = await self._known_config()
        if config.stop_command is None:
            return
        try:
            text = (await self._starter.run(config, config.stop_command)).sentence
        except Exception as error:  # it may have run: once is enough
            text = f"failed by a fault of ours: {type(error).__name__}: {error}"
        self._tell(f"stop command {text}")
        self.ordered_anew()  # its tree is another now

    async def _known_config(self) -> WorkerConfig:
        """As it was at the start of this life; where that is not known, as it is now."""
        life = self._life
        if life is not None and life.config is not None:
            return life.config
        try:
            return await self._starter.as_it_is_now(self._config)
        except (SpawnFailed, ConfigError) as error:
            self._tell(f"the stop command may be incomplete: {' '.join(str(error).split())}")
            return self._config

    async def _by_runner(self) -> None:
        life = self._launched
        if life is not None and not self._spared:
            with suppress(SpawnFailed):
                runner = self._runners.by_kind(life.runner)
                await runner.before_burial(life, self._config)

    async def _bury(self) -> None:
        unit, families = self._unit, self._endings.families(self._unit)
        grace, pauses = self._config.stop_grace, Pauses()
        by_itself = Deadline.after(self._clock.monotonic(), grace)
        while True:
            if self._spared:
                left = await self._left_alone(families, by_itself)
            else:
                left = await self._endings.bury(unit, families, grace, self._ordered_at)
                grace = 0.0
            if not left:
                return
            self._left(left)
            await pauses.wait()
            self.ordered_anew()

    async def _left_alone(self, families: Whose, until: Deadline) -> frozenset[ProcessId]:
        """What is still there when it has had the time of its grace to end by itself."""
        while left := await self._endings.left_alone(self._unit, families):
            if until.passed(self._clock.monotonic()) or not self._spared:
                break
            await asyncio.sleep(clamp_timeout(LOOK_AGAIN_SECONDS) or 0.0)
        return left

    async def _let_go(self) -> None:
        """A failed start may still be under way with whoever was to run it.

        Only what has been let go of there cannot come up beside the next life.
        """
        life = self._launched
        if life is not None and life.main is None:
            await self._runners.tidy(life.runner, life.unit)

    async def _close_life(self) -> None:
        life = self._life
        if life is not None:
            self.gone = OUT_OF_REACH if out_of_reach(life) else ALL_GONE
            await self._close(life)

    async def _forget_inherited(self) -> None:
        await self._endings.forget_inherited(self._unit.config.name)

    def _tell(self, text: str) -> None:
        self._note(Event(Kind.BURIAL, text, self._unit.config.name, self._unit.state.life))
