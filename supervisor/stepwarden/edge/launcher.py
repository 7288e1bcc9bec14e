"""Starts workers through a small launcher process, so that no exec can hold the loop.

`os.posix_spawn` returns only when the exec is done and keeps the interpreter lock until then: on a
hung file system, or a file with a write lease on it, the whole supervisor would stand. So only our
own interpreter is ever spawned, ahead of time; that spare takes a request, sets itself up and
execs the operator's path while we watch its socket under a limit. Exec keeps the pid, so the
worker is our direct child.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from stepwarden.clock import Clock, SystemClock
from stepwarden.core.deadline import Deadline, clamp_timeout
from stepwarden.core.evidence import ProcessId
from stepwarden.edge import signals
from stepwarden.edge.launch_program import CHANNEL
from stepwarden.edge.launch_spec import LAUNCHER_MARK, LaunchSpec
from stepwarden.edge.process_probe import identify
from stepwarden.errors import StepwardenError

__all__ = ["AT_ONCE", "TURN_SECONDS", "LaunchSpec", "Launcher", "SpawnFailed"]

_PROGRAM = str(Path(__file__).with_name("launch_program.py"))
_OUT_OF_THE_WAY = 10  # descriptors from here on cannot collide with those set up in the child
_ANSWER_BYTES = 8192
_CLOSE_SECONDS = 1.0

AT_ONCE = 2 * (os.cpu_count() or 1)
"""So many starts run side by side; the limit of the others begins when it is their turn.

Each costs the start of an interpreter. Were hundreds of them begun together (a host that boots),
each would take longer than any sensible limit, and none of the paths would be to blame.
"""

TURN_SECONDS = 1.0
"""An exec that takes longer waits for a file system, not for a core: the next one may begin."""


STAGES = {
    "+": "it was being set up",
    "u": "its user or group was being looked up",
    "o": "its output file was being opened",
    "c": "its working directory was being entered",
    "x": "it was being executed",
}
"""What the launcher process was at, by the letter that it wrote last."""


Chosen = Callable[[ProcessId], Awaitable[None]]
"""Told which process is to become the worker, before that is asked to."""


async def _nobody(_: ProcessId) -> None:
    """Nobody has to know before."""


class SpawnFailed(StepwardenError):
    """The worker could not be started; the text says what failed, where, and the errno."""


class Launcher:
    """Keeps one spare launcher process ready, so that a start costs no interpreter start.

    `mark` stands in the environment of launcher processes, never of what they start.
    """

    def __init__(self, clock: Clock | None = None, at_once: int = AT_ONCE, mark: str = "") -> None:
        self._environ = {**os.environ, LAUNCHER_MARK: mark} if mark else dict(os.environ)
        self._clock = SystemClock() if clock is None else clock
        self._turns = asyncio.Semaphore(at_once)
        self._spare: _Spare | None = None
        self._closed = False

    async def start(self) -> None:
        """Make the first spare; SpawnFailed where not even that works."""
        self._spare = _Spare.make(self._environ)

    async def spawn(self, spec: LaunchSpec, limit: float, chosen: Chosen = _nobody) -> ProcessId:
        """Start a worker and return once it has exec'd, within `limit` seconds of its turn.

        SpawnFailed: it does not run, and its launcher process has ended or has been killed.
        A worker may have ended again before this returns: `Reaper.exit_of` knows. What `chosen`
        takes is no part of the limit; it may be told of a second process, in place of the first.
        """
        async with _Turn(self._turns):
            return await self._spawn(spec, limit, chosen)

    async def _spawn(self, spec: LaunchSpec, limit: float, chosen: Chosen) -> ProcessId:
        request = spec.encoded()
        try:
            # A spare can have died while it waited; the second one is fresh.
            for ready in (self._take(), None):
                spare = ready or _Spare.make(self._environ)
                try:
                    await chosen(spare.process)
                except BaseException:
                    spare.kill()
                    spare.close()
                    raise
                deadline = Deadline.after(self._clock.monotonic(), limit)
                process = await self._exec(spare, spec, request, deadline)
                if process is not None:
                    return process
        finally:
            asyncio.get_running_loop().call_soon(self._refill)
        raise SpawnFailed(f"cannot start {spec.argv[0]!r}: the launcher process ended by itself")

    async def close(self) -> None:
        """End the spare. Workers are left alone."""
        self._closed = True
        spare = self._take()
        if spare is None:
            return
        spare.kill()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await spare.read_to_end()
        spare.close()

    async def _exec(
        self, spare: _Spare, spec: LaunchSpec, request: bytes, deadline: Deadline
    ) -> ProcessId | None:
        """The running worker; None where the spare had died before it took the request."""
        remaining = deadline.remaining(self._clock.monotonic())
        try:
            async with asyncio.timeout(clamp_timeout(remaining)):
                await spare.exchange(request, spec.passed())
        except TimeoutError:
            spare.take_what_arrived()
        except asyncio.CancelledError:
            spare.kill()
            raise
        finally:
            spare.close()
        if not spare.ended:
            spare.kill()
            at = STAGES.get(spare.stage, "the launcher process was being made")
            raise SpawnFailed(f"cannot start {spec.argv[0]!r}: {at} when the limit was reached")
        if spare.failure:
            raise SpawnFailed(spare.failure)
        return spare.process if spare.stage else None

    def _take(self) -> _Spare | None:
        spare, self._spare = self._spare, None
        if spare is not None:
            signals.wake(spare.process)  # a start must not fail because somebody stopped it
        return spare

    def _refill(self) -> None:
        if self._spare is None and not self._closed:
            # Out of processes or descriptors: the next spawn tries again and says so.
            with suppress(SpawnFailed):
                self._spare = _Spare.make(self._environ)


class _Turn:
    """One place among those that start side by side, for `TURN_SECONDS` at most."""

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places = places
        self._holds = False

    async def __aenter__(self) -> None:
        await self._places.acquire()
        self._holds = True
        self._timer = asyncio.get_running_loop().call_later(TURN_SECONDS, self._give_back)

    async def __aexit__(self, *_: object) -> None:
        self._timer.cancel()
        self._give_back()

    def _give_back(self) -> None:
        if self._holds:
            self._holds = False
            self._places.release()


class _Spare:
    """One launcher process that waits for its request.

    `ended`: its side of the socket is closed, by exec or death.
    """

    def __init__(self, process: ProcessId, channel: socket.socket) -> None:
        self.process = process
        self._answer = b""
        self.ended = False
        self._channel = channel

    @classmethod
    def make(cls, environ: Mapping[str, str]) -> _Spare:
        """Spawn one; a few milliseconds of our own interpreter, never of an operator's path."""
        try:
            ours, theirs = socket.socketpair()
        except OSError as error:
            raise SpawnFailed(f"cannot make a launcher process: {error}") from None
        with theirs:
            try:
                pid = _spawn_program(theirs, environ)
            except OSError as error:
                ours.close()
                raise SpawnFailed(f"cannot make a launcher process: {error}") from None
        ours.setblocking(False)
        # Nobody has reaped it yet, the reaper runs on this very loop: it is there, dead or alive.
        process = identify(pid)
        if process is None:  # no descriptor is left to look with, and it could never be found again
            ours.close()  # it ends by that
            raise SpawnFailed("cannot make a launcher process: it cannot be looked at")
        return cls(process, ours)

    @property
    def stage(self) -> str:
        """The letter of what it did last (see STAGES); "" before it took the request."""
        return self._answer.partition(b"!")[0].decode("ascii", "replace")[-1:]

    @property
    def failure(self) -> str:
        """Why it could not become the worker; "" where it could, or has not said."""
        return self._answer.partition(b"!")[2].decode("utf-8", "replace")

    async def exchange(self, request: bytes, passed: Sequence[int]) -> None:
        """Hand the request over, our descriptors with it, and read the answer up to the end."""
        with suppress(BrokenPipeError, ConnectionResetError):
            # One byte in front of the request carries them; an empty socket takes it at once.
            socket.send_fds(self._channel, [b" "], passed)
            await asyncio.get_running_loop().sock_sendall(self._channel, request)
            self._channel.shutdown(socket.SHUT_WR)
        await self.read_to_end()

    async def read_to_end(self) -> None:
        """Read until the other side is closed."""
        loop = asyncio.get_running_loop()
        while not self.ended:
            try:
                self._note(await loop.sock_recv(self._channel, _ANSWER_BYTES))
            except ConnectionResetError:
                self.ended = True

    def take_what_arrived(self) -> None:
        """Read what is there already, without waiting."""
        with suppress(BlockingIOError):
            while not self.ended:
                try:
                    self._note(self._channel.recv(_ANSWER_BYTES))
                except ConnectionResetError:
                    self.ended = True

    def kill(self) -> None:
        """End the process, whatever it is by now."""
        signals.send(self.process, signal.SIGKILL)

    def close(self) -> None:
        """Let go of our end; a spare without a request ends by that."""
        self._channel.close()

    def _note(self, data: bytes) -> None:
        self._answer += data
        self.ended = not data


def _spawn_program(channel: socket.socket, environ: Mapping[str, str]) -> int:
    source = fcntl.fcntl(channel.fileno(), fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY)
    try:
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-E", _PROGRAM],
            environ,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_DUP2, source, CHANNEL),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
        )
    finally:
        os.close(source)
