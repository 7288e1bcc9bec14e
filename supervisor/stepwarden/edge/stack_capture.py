"""Captures the stacks of a worker's ranks, all at once and within one limit, off the loop.

Of Python processes py-spy tells; of others the kernel (`kernel_facts`). py-spy runs through the
launcher, without stopping what it looks at, and is killed at the limit. What it prints goes into a
file in memory that can only grow so far.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline, clamp_timeout, earliest, elapsed
from stepwarden.core.evidence import Exit, ProcessId
from stepwarden.core.sentences import describe_exit, seconds
from stepwarden.core.stacks import NOTHING_SEEN, StackDiff, Stacks, compare, parse_dump
from stepwarden.edge import signals
from stepwarden.edge.aside import Aside
from stepwarden.edge.command_output import readable
from stepwarden.edge.kernel_facts import ThreadFacts, as_stacks, facts_of, pythons
from stepwarden.edge.launch_spec import COMMAND_MARK, COMMAND_PID
from stepwarden.edge.launcher import Launcher, LaunchSpec, SpawnFailed
from stepwarden.edge.process_probe import identify
from stepwarden.edge.reaper import Reaper
from stepwarden.edge.tracing import Tracing
from stepwarden.waiting import wait

MAX_OUTPUT_BYTES = 2 << 20
"""What py-spy may print of one process."""

AT_ONCE = 8
"""So many py-spy run side by side, whoever asked for them."""

AGAIN = 5
AGAIN_SECONDS = 0.1
"""So many more looks, so far apart, at one that runs and seems to stand."""

TRIES = 2
"""A look at a process that runs on may fail by what it does meanwhile."""

OFF = "off by incidents.stacks"
_SHOWN = 200  # characters of an error


@dataclass(frozen=True, slots=True)
class Look:
    """One process at one instant. `error`: why there are no stacks; "" where there are some."""

    process: ProcessId | None
    stacks: Stacks = ()
    threads: tuple[ThreadFacts, ...] = ()
    python: bool = True
    error: str = ""


@dataclass(frozen=True, slots=True)
class Capture:
    """One look at several ranks, by name, begun `at` and over after `took` seconds."""

    at: float
    took: float
    looks: Mapping[str, Look] = field(default_factory=dict)

    @property
    def seen(self) -> int:
        """How many of them show where they are."""
        return sum(bool(look.stacks) for look in self.looks.values())

    @property
    def error(self) -> str:
        """The first that went wrong; "" for nothing."""
        return next((look.error for look in self.looks.values() if look.error), "")


def compare_captures(before: Capture, after: Capture) -> dict[str, StackDiff]:
    """What two captures say of each rank that both looked at."""
    found = {}
    for name, look in after.looks.items():
        former = before.looks.get(name)
        if former is None or former.process != look.process or not (former.stacks and look.stacks):
            found[name] = NOTHING_SEEN
        else:
            found[name] = compare(former.stacks, look.stacks, elapsed(before.at, after.at))
    return found


class StackCapture:
    """Captures for whoever asks. `mark`: by it a later daemon finds a py-spy that was left."""

    def __init__(self, launcher: Launcher, reaper: Reaper, clock: Clock, mark: str = "") -> None:
        self._launcher = launcher
        self._reaper = reaper
        self._clock = clock
        self._mark = mark
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def capture(
        self,
        subjects: Mapping[str, ProcessId | None],
        tracing: Tracing | None,
        native: bool,
        limit: float,
        aside: Aside,
        before: Capture | None = None,
    ) -> Capture:
        """Look at these processes; None: one of another pid namespace.

        `tracing` None: without py-spy. `before`: the look that this one is compared with; one that
        runs and seems not to have moved since is looked at some more times. Never raises for what
        it looks at, nor takes longer than `limit` seconds but for a moment.
        """
        at = self._clock.monotonic()
        deadline = Deadline.after(at, limit)
        known = {name: process for name, process in subjects.items() if process is not None}
        processes = list(dict.fromkeys(known.values()))  # one may be that of many ranks
        pids = [process.pid for process in processes]
        try:
            snakes = await aside.call(lambda: pythons(pids), deadline)
        except OSError:  # TimeoutError is one too
            snakes = frozenset(pids)
        pythonic = [process for process in processes if process.pid in snakes]
        former = {} if before is None else _by_pid(before)
        facts, dumps = await asyncio.gather(
            self._facts(pids, aside, deadline),
            self._looks(pythonic, tracing, native, deadline, former),
        )
        looks = {
            name: _look(process, process is None or process.pid in snakes, facts, dumps)
            for name, process in subjects.items()
        }
        return Capture(at, elapsed(at, self._clock.monotonic()), looks)

    async def _looks(
        self,
        processes: Sequence[ProcessId],
        tracing: Tracing | None,
        native: bool,
        deadline: Deadline,
        former: Mapping[int, Stacks],
    ) -> dict[int, tuple[Stacks, str]]:
        dumps = await self._dumps(processes, tracing, native, deadline)
        for _ in range(AGAIN):
            # A short loop is easily met twice at the same line: one more look tells it apart.
            still = [p for p in processes if _runs_in_place(former.get(p.pid), dumps[p.pid][0])]
            now = self._clock.monotonic()
            pause = earliest(deadline, Deadline.after(now, AGAIN_SECONDS)).remaining(now)
            if not still or deadline.passed(now):
                break
            await asyncio.sleep(clamp_timeout(pause) or 0.0)
            again = await self._dumps(still, tracing, native, deadline)
            dumps |= {pid: dump for pid, dump in again.items() if dump[0]}
        return dumps

    async def _facts(
        self, pids: Sequence[int], aside: Aside, deadline: Deadline
    ) -> dict[int, tuple[ThreadFacts, ...]]:
        try:
            return await aside.call(lambda: facts_of(pids), deadline)
        except OSError:
            return {}

    async def _dumps(
        self,
        processes: Sequence[ProcessId],
        tracing: Tracing | None,
        native: bool,
        deadline: Deadline,
    ) -> dict[int, tuple[Stacks, str]]:
        if tracing is None or tracing.refusal or tracing.py_spy is None:
            why = OFF if tracing is None else tracing.refusal
            return {process.pid: ((), why) for process in processes}
        argv = [tracing.py_spy, "dump", "--json", "--full-filenames"]
        # Native frames are only to be had of a process that is stopped for a moment.
        argv += ["--native"] if native else ["--nonblocking"]
        found = await asyncio.gather(*(self._dump(argv, one, deadline) for one in processes))
        return {process.pid: dump for process, dump in zip(processes, found, strict=True)}

    async def _dump(
        self, argv: Sequence[str], process: ProcessId, deadline: Deadline
    ) -> tuple[Stacks, str]:
        try:
            output = os.memfd_create("stepwarden-stacks", os.MFD_CLOEXEC)
        except OSError as error:
            return (), f"py-spy cannot be started: {error.strerror}"
        try:
            fcntl.fcntl(output, fcntl.F_SETFL, os.O_APPEND)
            full = [*argv, "--pid", str(process.pid)]
            found: tuple[Stacks, str] = ((), "it has ended")
            for _ in range(TRIES):
                async with asyncio.timeout(deadline.remaining(self._clock.monotonic())):
                    async with self._turns:
                        if identify(process.pid) != process:
                            break
                        os.ftruncate(output, 0)
                        exit_ = await self._run(full, output, deadline)
                raw = os.pread(output, MAX_OUTPUT_BYTES, 0)
                found = await asyncio.to_thread(_parsed, raw, process.pid, exit_)
                if found[0]:
                    break
            return found if identify(process.pid) == process else ((), "it has ended")
        except TimeoutError:
            return (), "py-spy did not end within the limit and was killed"
        except (SpawnFailed, OSError) as error:
            return (), f"py-spy cannot be started: {error}"
        finally:
            os.close(output)

    async def _run(self, argv: Sequence[str], output: int, deadline: Deadline) -> Exit:
        env = {"PATH": os.defpath, "RUST_BACKTRACE": "0", "LC_ALL": "C.UTF-8"}
        if self._mark:
            env[COMMAND_MARK] = self._mark
        spec = LaunchSpec(
            argv,
            env,
            cwd="/",
            output_fd=output,
            limits={"fsize": MAX_OUTPUT_BYTES, "core": 0},
            pid_variable=COMMAND_PID if self._mark else None,
        )
        with self._reaper.expecting():
            left = deadline.remaining(self._clock.monotonic()) or 0.0
            started = await self._launcher.spawn(spec, left)
            try:
                return await wait(self._reaper.wait_exit(started), deadline, self._clock)
            except BaseException:
                with suppress(OSError):
                    signals.send(started, signal.SIGKILL)
                raise


def _by_pid(capture: Capture) -> dict[int, Stacks]:
    looks = capture.looks.values()
    return {look.process.pid: look.stacks for look in looks if look.process is not None}


def _runs_in_place(before: Stacks | None, after: Stacks) -> bool:
    if not before or not after:
        return False
    main = next((one for one in compare(before, after, 0.0).threads if one.main), None)
    return main is not None and main.same is True and main.active


def _look(
    process: ProcessId | None,
    python: bool,
    facts: Mapping[int, tuple[ThreadFacts, ...]],
    dumps: Mapping[int, tuple[Stacks, str]],
) -> Look:
    if process is None:
        return Look(None, error="its process cannot be seen: another pid namespace, or unproven")
    threads = facts.get(process.pid, ())
    if python:
        stacks, error = dumps.get(process.pid, ((), "not looked at"))
        return Look(process, stacks, threads, True, error)
    error = "" if threads else "nothing of it can be read in /proc"
    return Look(process, as_stacks(process.pid, threads), threads, False, error)


def _parsed(raw: bytes, pid: int, exit_: Exit) -> tuple[Stacks, str]:
    """What py-spy printed: the stacks, or why there are none."""
    text = raw.decode("utf-8", "replace")
    begin = text.find("[")
    if exit_.code == 0 and begin >= 0:
        try:
            dump, _ = json.JSONDecoder().raw_decode(text, begin)
            if stacks := parse_dump(dump, pid):
                return stacks, ""
            return (), "py-spy saw no thread"
        except (ValueError, RecursionError) as error:
            return (), f"py-spy's answer cannot be read: {error}"[:_SHOWN]
    if exit_.signal is not None:
        return (), f"py-spy was ended by {describe_exit(exit_)}"
    said = readable(raw[:_BYTES_SAID]).partition("Stack backtrace")[0]
    words = " ".join(said.split()) or f"it ended with {describe_exit(exit_)}"
    return (), f"py-spy: {words.removeprefix('Error: ')}"[:_SHOWN]


_BYTES_SAID = 2000


def told(capture: Capture) -> str:
    """One sentence: what came of a capture."""
    seen, all_ = capture.seen, len(capture.looks)
    text = f"stacks of {seen} of {all_} processes captured in {seconds(capture.took)}"
    return f"{text}; {capture.error}" if capture.error else text
