"""Starts a log process again that somebody killed, before its worker's next print breaks.

One that was stopped goes on, before the worker's next print waits.

The pipe stays whole because this daemon holds an end of it to read from, and never reads. A worker
that an earlier daemon started has the pipe as its own descriptor 1: opened anew from there, its
reading end is back, also where nobody has held it any more for a while.
"""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from stepwarden.clock import Clock
from stepwarden.core.evidence import ProcessId
from stepwarden.edge import log_program
from stepwarden.edge.launcher import Launcher, SpawnFailed
from stepwarden.edge.output_capture import CAPTURE_LIMIT_SECONDS, CaptureSpec, log_process
from stepwarden.edge.periodic import Periodic
from stepwarden.edge.process_probe import alive, identify
from stepwarden.edge.signals import wake

LOOK_SECONDS = 1.0
"""What is printed between two looks lies in the pipe meanwhile."""

MOST_REST = 30
CALM_LOOKS = 60
"""One that ends again and again is started ever more seldom, until it stays for so many looks."""

_SETTINGS = 3  # arguments of a log process, behind the path of its program


class LogGuard:
    """Watches over one log process. `reader`: our end of its pipe, which this owns.

    `process` None: none runs. `started`: told of each new one. `report`: of what happened.
    """

    def __init__(
        self,
        launcher: Launcher,
        spec: CaptureSpec,
        reader: int,
        process: ProcessId | None,
        clock: Clock,
        started: Callable[[ProcessId], None],
        report: Callable[[str], None],
    ) -> None:
        self._launcher = launcher
        self._spec = spec
        self._reader = reader
        self._process = process
        self._started = started
        self._report = report
        self._said = ""
        self._starts = 0
        self._rest = 0
        self._looks = Periodic(self._look, LOOK_SECONDS, clock)

    def start(self) -> None:
        """Begin to look, on the running loop."""
        self._looks.start()

    async def close(self) -> None:
        """Look no more, and let go of the pipe. A log process that runs goes on."""
        await self._looks.close()
        if self._reader >= 0:
            os.close(self._reader)
            self._reader = -1

    async def _look(self) -> bool:
        self._rest -= 1
        if self._process is not None and alive(self._process):
            if wake(self._process):  # else the pipe fills, and the worker's next print waits
                self._report(
                    f"the log process of its output, {self._process.pid}, had been stopped by"
                    " somebody; it goes on"
                )
            if self._rest < -CALM_LOOKS:
                self._starts = 0
            return True
        if not _is_needed(self._reader):
            return False  # nobody can write any more, and it has taken all there was
        if self._rest < 0:
            self._rest = min(2**self._starts - 1, MOST_REST)
            self._starts += 1
            await self._start_again()
        return True

    async def _start_again(self) -> None:
        gone = "is gone" if self._process is None else f"{self._process.pid} was ended by somebody"
        try:
            request = log_process(self._spec, self._reader)
            process = await self._launcher.spawn(request, CAPTURE_LIMIT_SECONDS)
        except SpawnFailed as error:
            self._say(f"the log process of its output {gone} and cannot be started again: {error}")
            return
        self._started(process)
        self._process, self._said = process, ""
        self._report(
            f"the log process of its output {gone}; another takes its place: {process.pid}"
        )

    def _say(self, text: str) -> None:
        if text != self._said:
            self._report(text)
        self._said = text


Found = tuple[int, CaptureSpec, ProcessId | None]
"""Our end of a pipe, where its log process writes, and that process; None: it is gone."""


def find_log(main: ProcessId, spec: CaptureSpec) -> Found | None:
    """The pipe that a worker prints into, and the log process behind it; None where there is none.

    A pipe that somebody else reads is none of ours. Reads /proc: call it in a thread.
    """
    output = f"/proc/{main.pid}/fd/1"
    try:
        pipe = os.stat(output)
        if not stat.S_ISFIFO(pipe.st_mode) or not alive(main):
            return None
        found = _log_of(pipe)
        if found is None and _is_read(output):
            return None
        reader = os.open(output, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(reader, True)
    except OSError:
        return None
    return (reader, spec, None) if found is None else (reader, found[1], found[0])


def _log_of(pipe: os.stat_result) -> tuple[ProcessId, CaptureSpec] | None:
    for entry in os.listdir("/proc"):
        with suppress(OSError, ValueError):  # it has ended, or is none
            words = Path("/proc", entry, "cmdline").read_bytes().split(b"\0")[:-1]
            if not _runs_log_program(words):
                continue
            if os.path.samestat(os.stat(f"/proc/{entry}/fd/0"), pipe):
                directory, max_file, keep = words[-_SETTINGS:]
                process = identify(int(entry))
                if process is not None:
                    where = Path(os.fsdecode(directory))
                    return process, CaptureSpec(where, int(max_file), int(keep))
    return None


def _runs_log_program(words: list[bytes]) -> bool:
    """An earlier version may have it elsewhere."""
    name = os.path.basename(log_program.__file__).encode()
    return len(words) > _SETTINGS and os.path.basename(words[-_SETTINGS - 1]) == name


def _is_read(pipe: str) -> bool:
    writer = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return not _events(writer, select.POLLOUT) & select.POLLERR
    finally:
        os.close(writer)


def _is_needed(reader: int) -> bool:
    """Whether somebody can write into the pipe, or something is left in there."""
    events = _events(reader, select.POLLIN)
    return not events & select.POLLHUP or bool(events & select.POLLIN)


def _events(descriptor: int, wanted: int) -> int:
    poll = select.poll()
    poll.register(descriptor, wanted)
    return dict(poll.poll(0)).get(descriptor, 0)
