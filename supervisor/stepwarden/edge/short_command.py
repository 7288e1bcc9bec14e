"""Runs an operator's short command (pre_start, stop, ready, release) under a limit.

It runs through the launcher, in a session of its own. At the limit its whole tree is killed: a
stop command that hangs is ended itself, and none piles up on the other. What a command leaves
running when it ends in time is left alone: starting something is what many are there for.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from stepwarden_proto.page import ENV_INCARNATION, ENV_PAGE_DIR, ENV_TARGET, ENV_TOKEN

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline, clamp_timeout, earliest, elapsed
from stepwarden.core.evidence import Exit, ProcessId
from stepwarden.core.sentences import describe_exit
from stepwarden.core.sentences import seconds as length
from stepwarden.edge import signals
from stepwarden.edge.burial import bury
from stepwarden.edge.command_output import CommandOutput
from stepwarden.edge.family import Family
from stepwarden.edge.launch_spec import COMMAND_MARK, COMMAND_PID
from stepwarden.edge.launcher import Launcher, LaunchSpec, SpawnFailed
from stepwarden.edge.process_table import ProcessTable
from stepwarden.edge.reaper import Reaper
from stepwarden.waiting import wait

KILL_SECONDS = 5.0
"""So long after KILL the command counts as one that cannot be ended."""

_TRIM_SECONDS = 0.1  # between two looks at how much it has printed
_SHOWN_CHARACTERS = 200  # of the last line, in one sentence


@dataclass(frozen=True, slots=True)
class ShortSpec:
    """A command and how long it may take, in seconds from the call.

    `launch` says all that it says for a worker (user, directory, environment, ...), but for where
    the output goes. What an agent is told in the environment is taken out: a command is no rank.
    No `cgroup` that is killed while the command may still run, as the worker's own.
    """

    launch: LaunchSpec
    timeout: float


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of a command. It did what it should where `error` is "".

    `exit` None: it never ran. `seconds`: how long it took, its killing included. `error`: one
    sentence. `output`: its last lines. `left`: those of its processes that could not be killed.
    """

    exit: Exit | None
    timed_out: bool
    seconds: float
    error: str = ""
    output: str = ""
    left: frozenset[ProcessId] = frozenset()

    @property
    def ok(self) -> bool:
        """True where it ended in time with exit code 0."""
        return not self.error

    @property
    def sentence(self) -> str:
        """One sentence for events: how it ended, after how long, and the last that it said."""
        return self.error or f"ended with exit code 0 after {length(self.seconds)}"


RunShort = Callable[[ShortSpec], Awaitable[Ended]]
"""`run_short` with all but the command filled in."""


def short_runner(launcher: Launcher, reaper: Reaper, clock: Clock, mark: str = "") -> RunShort:
    """What runs commands for those who have no business with launcher and reaper.

    `mark`: by this a later supervisor finds those that this one leaves under way; "": by nothing.
    """

    async def run(spec: ShortSpec) -> Ended:
        marked = {**spec.launch.env, COMMAND_MARK: mark} if mark else spec.launch.env
        launch = replace(spec.launch, env=marked, pid_variable=COMMAND_PID if mark else None)
        return await run_short(launcher, reaper, replace(spec, launch=launch), clock)

    return run


async def run_short(launcher: Launcher, reaper: Reaper, spec: ShortSpec, clock: Clock) -> Ended:
    """Run it to its end or to its limit; never raises for a fault of the command.

    Cancelled, it kills the command and what descends from it, without waiting for their end.
    """
    began = clock.monotonic()
    try:
        output = CommandOutput()
    except OSError as error:
        return Ended(None, False, 0.0, f"cannot be started: {error.strerror}")
    try:
        run = _Run(launcher, reaper, spec, clock, output)
        ended = await run.to_the_end(began)
    finally:
        said = output.close()
    seconds = elapsed(began, clock.monotonic())
    return replace(ended, seconds=seconds, output=said, error=_error(ended, spec, seconds, said))


class _Run:
    def __init__(
        self,
        launcher: Launcher,
        reaper: Reaper,
        spec: ShortSpec,
        clock: Clock,
        output: CommandOutput,
    ) -> None:
        self._launcher = launcher
        self._reaper = reaper
        self._spec = spec
        self._clock = clock
        self._output = output
        # By this the tree is found whatever it did to its ancestry; no worker's is like it.
        self._marker = f"command-{secrets.token_hex(8)}"

    async def to_the_end(self, began: float) -> Ended:
        """`seconds` and the sentence are still to be filled in, but where it could not start."""
        deadline = Deadline.after(began, self._spec.timeout)
        with self._reaper.expecting():
            try:
                process = await self._start(deadline)
            except TimeoutError:
                return Ended(None, True, 0.0)
            except SpawnFailed as error:
                return Ended(None, False, 0.0, str(error))
            return await self._follow(process, deadline)

    async def _start(self, deadline: Deadline) -> ProcessId:
        env = {
            key: value
            for key, value in self._spec.launch.env.items()
            if key not in (ENV_TARGET, ENV_TOKEN, ENV_PAGE_DIR)
        }
        env[ENV_INCARNATION] = self._marker
        launch = replace(
            self._spec.launch, env=env, stdout_path=None, output_fd=self._output.descriptor
        )
        # Waiting for its turn counts too: whoever waits for the command waits for all of it.
        left = deadline.remaining(self._clock.monotonic())
        limit = self._spec.timeout if left is None else left
        starting = self._launcher.spawn(launch, limit)
        return await wait(starting, deadline, self._clock, unclaimed=self._end)

    def _end(self, process: ProcessId) -> None:
        _kill(Family(process, self._marker))

    async def _follow(self, process: ProcessId, deadline: Deadline) -> Ended:
        family = Family(process, self._marker)
        exiting = asyncio.ensure_future(self._reaper.wait_exit(process))
        try:
            if await self._in_time(exiting, deadline):
                return Ended(exiting.result(), False, 0.0)
            left = await bury(
                family, 0.0, KILL_SECONDS, self._clock, _ignore, stop_signal=signal.SIGKILL
            )
            self._reaper.reap()
            exit_ = self._reaper.exit_of(process)
            return Ended(exit_, True, 0.0, left=left)
        except asyncio.CancelledError:
            _kill(family)
            raise
        finally:
            exiting.cancel()

    async def _in_time(self, exiting: asyncio.Future[Exit], deadline: Deadline) -> bool:
        while True:
            now = self._clock.monotonic()
            turn = earliest(deadline, Deadline.after(now, _TRIM_SECONDS)).remaining(now)
            await asyncio.wait({exiting}, timeout=clamp_timeout(turn))
            if not exiting.done() and deadline.passed(self._clock.monotonic()):
                # We may have stood still ourselves; what has ended by now has ended in time.
                self._reaper.reap()
                await asyncio.wait({exiting}, timeout=0)
                return exiting.done()
            if exiting.done():
                return True
            self._output.trim()


def _kill(family: Family) -> None:
    try:
        table = ProcessTable.scan()
    except OSError:  # no descriptor is left to look with: at least its first process
        signals.send(family.main, signal.SIGKILL)
        return
    family.observe(table)
    for process in sorted(family.members(table)):
        signals.send(process, signal.SIGKILL)


def _ignore(_: str) -> None:
    """What was sent to whom is no news: the limit and what is left are told in the end."""


def _error(ended: Ended, spec: ShortSpec, seconds: float, said: str) -> str:
    if ended.error:
        return ended.error
    if ended.timed_out:
        what = f"took longer than its limit of {length(clamp_timeout(spec.timeout) or 0.0)}"
        if ended.exit is None and not ended.left:
            what += " to start"
        elif ended.left:
            pids = ", ".join(str(process.pid) for process in sorted(ended.left))
            what += f" and cannot be killed: pid {pids}"
        else:
            what += " and was killed"
    elif ended.exit == Exit(code=0):
        return ""
    elif ended.exit is not None and ended.exit.signal is not None:
        what = f"was ended by {describe_exit(ended.exit)} after {length(seconds)}"
    else:
        how = describe_exit(ended.exit or Exit())
        what = f"ended with {how} after {length(seconds)}"
    return f"{what}{_last_words(said)}"


def _last_words(said: str) -> str:
    if not said:
        return ""
    line = said.rpartition("\n")[2]
    return f"; it said last: {line[:_SHOWN_CHARACTERS]}"
