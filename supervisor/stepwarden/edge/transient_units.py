"""The systemd runner: each life of a worker is a transient service of its own.

The unit keeps the life apart from the daemon: own control group, own limits, own journal, neither
the daemon's sandbox nor its end. What we ask of systemd and why stands at `_properties`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from stepwarden.clock import Clock, SystemClock
from stepwarden.core.deadline import Deadline, earliest
from stepwarden.core.evidence import Exit
from stepwarden.edge.aside import Aside
from stepwarden.edge.begun import Begun
from stepwarden.edge.cgroup import at_control_group
from stepwarden.edge.dbus_link import BusError
from stepwarden.edge.environment_file import EnvironmentFiles, is_text, problem_with
from stepwarden.edge.launcher import SpawnFailed
from stepwarden.edge.systemd_bus import DONE, LATE, OVER, Property, SystemdBus
from stepwarden.edge.unit_facts import UnitFacts
from stepwarden.edge.unit_names import PREFIX, incarnation_of, slice_of, unit_name
from stepwarden.edge.unit_program import (
    SETUP_STATUSES,
    not_in_path,
    program_path,
    why_not_started,
)

TIDY_SECONDS = 20.0
"""For what is left of a unit: stopping it, and systemd letting go of its name."""

LIMIT_NAMES = {
    "nofile": "LimitNOFILE",
    "memlock": "LimitMEMLOCK",
    "core": "LimitCORE",
    "nproc": "LimitNPROC",
    "stack": "LimitSTACK",
    "as": "LimitAS",
    "fsize": "LimitFSIZE",
}

_INFINITY = 2**64 - 1
_DIAGNOSIS_SECONDS = 2.0
_FIRST_LOOK, _SLOWEST_LOOK = 0.005, 0.5  # seconds between looks whether a name is free again
_MICRO = 1_000_000


@dataclass(frozen=True, slots=True)
class TransientSpec:
    """What to start. `incarnation` is "WORKER.NUMBER.HEX", the name of the life.

    `argv[0]` without a slash is looked up in the PATH of `env`; with one it is relative to `cwd`.
    `env` is all that the command gets beside what systemd adds (INVOCATION_ID, JOURNAL_STREAM, and
    USER, HOME, ... with `user`). `limits`: by the keys of LIMIT_NAMES, None is unlimited. `output`:
    a file to append to; None: the journal. `stop_signal` and `stop_grace` (seconds) are for a stop
    that is not ours: the host shuts down, or someone says `systemctl stop`.
    """

    worker: str
    incarnation: str
    argv: Sequence[str] = field(repr=False)
    env: Mapping[str, str] = field(repr=False)
    cwd: str = "/"
    user: str | None = None
    group: str | None = None
    umask: int | None = None
    nice: int | None = None
    limits: Mapping[str, int | None] = field(default_factory=dict)
    output: str | None = None
    stop_signal: int = signal.SIGTERM
    stop_grace: float = 30.0
    delegate: bool = False


@dataclass(frozen=True, slots=True)
class Leftover:
    """A transient unit of ours that is there; `exit`: how its main process ended, None: not yet."""

    worker: str
    incarnation: str
    begun: Begun
    exit: Exit | None


class TransientUnits:
    """Starts workers in transient units, and takes what is left of the units away.

    `owner` tells our units from those of another daemon on this host: the state directory.
    `after`: the daemon's own unit, so that at shutdown workers are stopped before it is.
    """

    def __init__(
        self,
        bus: SystemdBus,
        runtime_dir: Path,
        owner: str,
        *,
        after: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._bus = bus
        self.files = EnvironmentFiles(runtime_dir)
        self._owner = owner
        self.after = after
        self._clock = SystemClock() if clock is None else clock
        self._undoing: set[asyncio.Task[bool]] = set()

    async def start(self, spec: TransientSpec, limit: float) -> Begun:
        """Start a worker and return once its command has been exec'd, within `limit` seconds.

        SpawnFailed: it does not run, and nothing of its unit is left, or `leftovers` names it.
        """
        deadline = Deadline.after(self._clock.monotonic(), limit)
        unit = _checked(spec)
        program = await self._find(spec, deadline)
        try:
            environment = self.files.write(unit, spec.env)
        except OSError as error:
            raise SpawnFailed(f"cannot write the environment of {unit}: {error}") from None
        try:
            return await self._start(spec, unit, program, environment, deadline)
        except SpawnFailed:
            await self._undo(unit)
            raise
        except BaseException:
            task = asyncio.ensure_future(self._undo(unit))
            self._undoing.add(task)
            task.add_done_callback(self._undoing.discard)
            raise
        finally:
            self.files.remove(unit)

    async def facts(self, unit: str) -> UnitFacts | None:
        """What systemd says of the unit; None where it is gone. Raises BusError."""
        return await self._bus.facts(unit) if await self._bus.loaded(unit) else None

    async def exit_of(self, unit: str) -> Exit | None:
        """How its main process ended; None while it runs, and where the unit is gone.

        Readable until the unit is tidied. Raises BusError.
        """
        facts = await self.facts(unit)
        if facts is None or facts.exit is None:
            return None
        return replace(facts.exit, oom=facts.exit.oom or await self._ran_out(unit))

    async def exit_within(self, unit: str, limit: float) -> Exit | None:
        """As `exit_of`, and waits for it: systemd may hear of an end a little later than we do."""
        deadline = Deadline.after(self._clock.monotonic(), limit)
        pause = _FIRST_LOOK
        while (found := await self.exit_of(unit)) is None:
            now = self._clock.monotonic()
            if deadline.passed(now) or not await self._bus.loaded(unit):
                return None
            await asyncio.sleep(earliest(deadline, Deadline.after(now, pause)).remaining(now) or 0)
            pause = min(2 * pause, _SLOWEST_LOOK)
        return found

    async def tidy(self, unit: str, limit: float = TIDY_SECONDS) -> bool:
        """Take the unit away with all that is left in it; True once its name is free again.

        For a life that is over: what still runs in there is killed without grace. May be called
        again, also for a unit that is gone. Raises BusError.
        """
        deadline = Deadline.after(self._clock.monotonic(), limit)
        self.files.remove(unit)
        pause = _FIRST_LOOK
        # Someone else may have stopped the unit; then its slice is left.
        while await self._bus.loaded(unit) or await self._bus.loaded(slice_of(unit)):
            left = deadline.remaining(self._clock.monotonic())
            if not left:
                return False
            await self._bus.kill_unit(unit, signal.SIGKILL)
            # Everybody in a slice is stopped with it, and here that is this unit alone.
            await self._bus.stop_unit(slice_of(unit), left)
            await self._bus.stop_unit(unit, left)
            await self._bus.reset_failed(unit)
            # systemd forgets it a moment later.
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, _SLOWEST_LOOK)
        return True

    async def leftovers(self) -> list[Leftover]:
        """Every transient unit of this owner that is there, running or ended. Raises BusError."""
        found = []
        for listed in await self._bus.list_units(PREFIX):
            names = incarnation_of(listed.name)
            if names is None or not listed.description.endswith(self._signature):
                continue
            facts = await self.facts(listed.name)
            if facts is not None:
                begun = Begun(facts.main, facts.cgroup, listed.name)
                exited = facts.exit and await self.exit_of(listed.name)
                found.append(Leftover(*names, begun, exited))
        return found

    async def close(self) -> None:
        """Wait for starts that are being undone, and remove our files. Workers are left alone."""
        if self._undoing:
            await asyncio.wait(self._undoing, timeout=TIDY_SECONDS)
        self.files.close()

    @property
    def _signature(self) -> str:
        return f" of {self._owner}"

    async def _start(
        self, spec: TransientSpec, unit: str, program: str, environment: Path, deadline: Deadline
    ) -> Begun:
        limit = deadline.remaining(self._clock.monotonic()) or 0.0
        properties = self._properties(spec, program, environment, limit)
        try:
            outcome = await self._bus.start_transient(unit, properties, limit)
            facts = await self._bus.facts(unit)
        except BusError as error:
            raise SpawnFailed(f"cannot start {spec.argv[0]!r} as {unit}: {error}") from None
        # One that is done has been exec'd, even if it has ended by now.
        begun = outcome == DONE or (outcome == OVER and facts is not None and facts.running)
        if begun and facts is not None:
            return Begun(facts.main, facts.cgroup, unit)
        raise SpawnFailed(await self._why(spec, program, outcome, facts))

    async def _ran_out(self, unit: str) -> bool:
        facts = await self._bus.facts(slice_of(unit))
        group = None if facts is None else at_control_group(facts.cgroup)
        return group is not None and bool(group.oom_kills())

    async def _undo(self, unit: str) -> bool:
        with suppress(BusError):
            return await self.tidy(unit)
        return False

    async def _find(self, spec: TransientSpec, deadline: Deadline) -> str:
        argv0 = spec.argv[0]
        if "/" in argv0:
            return os.path.join(spec.cwd, argv0)
        try:
            found = await Aside(self._clock).call(
                lambda: program_path(argv0, spec.env, spec.cwd), deadline
            )
        except OSError:  # TimeoutError is one
            raise SpawnFailed(f"cannot start {argv0!r}: looking in PATH took too long") from None
        if found is None:
            raise SpawnFailed(not_in_path(argv0))
        return found

    async def _why(
        self, spec: TransientSpec, program: str, outcome: str, facts: UnitFacts | None
    ) -> str:
        argv0 = spec.argv[0]
        if outcome == LATE:
            return f"cannot start {argv0!r}: exec took longer than the limit"
        if facts is None or facts.exec_status not in SETUP_STATUSES:
            result = "" if facts is None else f", result {facts.result}"
            return f"cannot start {argv0!r}: systemd says {outcome}{result}"
        limit = Deadline.after(self._clock.monotonic(), _DIAGNOSIS_SECONDS)
        status = facts.exec_status
        try:
            return await Aside(self._clock).call(
                lambda: why_not_started(status, program, argv0, spec.cwd), limit
            )
        except OSError:  # TimeoutError is one
            return f"cannot start {argv0!r}: systemd says status {status}"

    def _properties(
        self, spec: TransientSpec, program: str, environment: Path, limit: float
    ) -> list[Property]:
        # systemd would put variables in place of $NAME; $$ is how it writes a plain $.
        argv = [word.replace("$", "$$") for word in spec.argv]
        about = f"stepwarden worker {spec.worker}, life {spec.incarnation}{self._signature}"
        properties: list[Property] = [
            ("Description", ("s", about)),
            ("ExecStart", ("a(sasb)", [(program, argv, False)])),
            ("EnvironmentFiles", ("a(sb)", [(str(environment), False)])),
            # The start is over when the command has been exec'd, or why it could not be is known.
            ("Type", ("s", "exec")),
            ("TimeoutStartUSec", ("t", _micro(limit))),
            # However main ends, the unit stays with its exit status, and all who are left in its
            # control group: whom to end, when and after which evidence is our decision.
            ("RemainAfterExit", ("b", True)),
            ("SuccessExitStatus", ("(aiai)", _any_exit())),
            ("OOMPolicy", ("s", "continue")),
            # A stop that is not ours ends the whole tree as we would: signal, grace, KILL.
            ("KillMode", ("s", "control-group")),
            ("KillSignal", ("i", int(spec.stop_signal))),
            ("SendSIGKILL", ("b", True)),
            ("TimeoutStopUSec", ("t", _micro(spec.stop_grace))),
            ("IgnoreSIGPIPE", ("b", False)),
            ("MemoryAccounting", ("b", True)),  # the group counts whom the kernel kills for memory
            ("StandardInput", ("s", "null")),
            ("SyslogIdentifier", ("s", spec.worker)),
            ("WorkingDirectory", ("s", spec.cwd)),
        ]
        return [*properties, *_output(spec), *_credentials(spec), *self._place(spec)]

    def _place(self, spec: TransientSpec) -> list[Property]:
        # The group of the unit itself is removed within a millisecond of its last process; that of
        # its slice stays until it is tidied, and counts for all below it.
        place: list[Property] = [("Slice", ("s", slice_of(unit_name(spec.incarnation))))]
        if self.after is not None:
            place.append(("After", ("as", [self.after])))
        if spec.delegate:
            place.append(("Delegate", ("b", True)))
        return place


def _checked(spec: TransientSpec) -> str:
    """The name of its unit; SpawnFailed for what systemd could not hand over as it is."""
    if not all(map(is_text, spec.argv)):
        raise SpawnFailed("the command is not UTF-8, and systemd takes nothing else")
    for text in (spec.worker, spec.cwd, spec.user, spec.group, spec.output):
        if text is not None and not is_text(text):
            raise SpawnFailed(f"{text!r} is not UTF-8, and systemd takes nothing else")
    if not spec.cwd.startswith("/"):
        raise SpawnFailed(f"the working directory {spec.cwd!r} is not absolute")
    problem = problem_with(spec.env)
    if problem is not None:
        raise SpawnFailed(problem)
    try:
        return unit_name(spec.incarnation)
    except ValueError as error:
        raise SpawnFailed(str(error)) from None


def _output(spec: TransientSpec) -> list[Property]:
    if spec.output is None:
        return [("StandardOutput", ("s", "journal")), ("StandardError", ("s", "journal"))]
    names = ("StandardOutputFileToAppend", "StandardErrorFileToAppend")
    return [(name, ("s", spec.output)) for name in names]


def _credentials(spec: TransientSpec) -> list[Property]:
    own: list[Property] = []
    if spec.user is not None:
        own.append(("User", ("s", spec.user)))
    if spec.group is not None:
        own.append(("Group", ("s", spec.group)))
    if spec.umask is not None:
        own.append(("UMask", ("u", spec.umask)))
    if spec.nice is not None:
        own.append(("Nice", ("i", spec.nice)))
    for name, value in spec.limits.items():
        own.append((LIMIT_NAMES[name], ("t", _INFINITY if value is None else value)))
    return own


def _any_exit() -> tuple[list[int], list[int]]:
    codes = [code for code in range(256) if code not in SETUP_STATUSES]
    return codes, [int(number) for number in signal.valid_signals()]


def _micro(seconds: float) -> int:
    return max(1, round(seconds * _MICRO))
