"""The only place that waits for children: reaps everything, tells how each of them ended.

The supervisor is a child subreaper: what its workers orphan becomes its child, is seen and is
reaped. Whoever used asyncio's or subprocess' own waiting beside this would lose exit codes.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stepwarden.core.evidence import Exit, ProcessId
from stepwarden.edge.process_table import look_up, read_process

_PR_SET_CHILD_SUBREAPER = 36
_REAPED_PER_TURN = 256  # then the loop gets its turn; a flood of orphans must not hold it
_REMEMBERED = 1024


class Reaper:
    """Calls `on_exit(pid, how)` on the loop for every child that ended, strangers included."""

    def __init__(self, on_exit: Callable[[int, Exit], None]) -> None:
        self._on_exit = on_exit
        self._loop: asyncio.AbstractEventLoop | None = None
        self._recent: dict[ProcessId, Exit] = {}
        self._nameless: dict[int, Exit] = {}  # by pid: those whose start time could not be read
        self._expected = 0
        self._awaited: dict[int, list[asyncio.Future[Exit]]] = {}

    def start(self) -> None:
        """Begin, on the running loop of the main thread; children that ended before are told."""
        become_subreaper()
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(signal.SIGCHLD, self.reap)
        # Hundreds that end together fill the pipe that wakes the loop, which then wakes all the
        # same. The complaint about it was seen to hold the main thread for minutes.
        signal.set_wakeup_fd(signal.set_wakeup_fd(-1), warn_on_full_buffer=False)
        # Whoever started us may have left it blocked.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
        self._loop.call_soon(self.reap)

    def stop(self) -> None:
        """Leave children alone from now on."""
        if self._loop is not None:
            self._loop.remove_signal_handler(signal.SIGCHLD)
            self._loop = None

    def exit_of(self, process: ProcessId) -> Exit | None:
        """How a process ended that was reaped lately; None for one that was not.

        For a worker that ended before its starter could note its pid down.
        """
        return self._recent.get(process) or self._nameless.get(process.pid)

    async def wait_exit(self, process: ProcessId) -> Exit:
        """How `process`, a child of ours, ends; returns once it is reaped, and may be cancelled.

        Exit() where nobody can know: it is no child of ours, or was reaped too long ago.
        """
        # Its pid is nobody else's until it is reaped, so the pid alone is enough to wait for it.
        future: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
        waiting = self._awaited.setdefault(process.pid, [])
        waiting.append(future)
        try:
            if (known := self.exit_of(process)) is not None:
                return known
            return await future if _may_be_reaped(process) else Exit()
        finally:
            waiting.remove(future)
            if not waiting and self._awaited.get(process.pid) is waiting:
                del self._awaited[process.pid]

    @contextmanager
    def expecting(self) -> Iterator[None]:
        """While a start is under way, exits are kept by their pid alone where there is no more.

        Out of descriptors the start time of what has ended cannot be read. Kept no longer than
        this, because a pid may be another's later.
        """
        self._expected += 1
        try:
            yield
        finally:
            self._expected -= 1
            if not self._expected:
                self._nameless.clear()

    def reap(self) -> None:
        """Take what has ended by now, without waiting; nothing while stopped.

        SIGCHLD calls it. The daemon may too, to know of an exit before it judges.
        """
        if self._loop is None:
            return
        for _ in range(_REAPED_PER_TURN):
            if not self._reap_one(self._loop):
                return
        self._loop.call_soon(self.reap)

    def _reap_one(self, loop: asyncio.AbstractEventLoop) -> bool:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                return False
            # Its start time can be read only as long as it is not reaped.
            entry = read_process(ended.si_pid)
            os.waitid(os.P_PID, ended.si_pid, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            return False
        how = _how(ended)
        if entry is not None:
            self._remember(entry.process, how)
        elif self._expected:
            self._nameless[ended.si_pid] = how
        for future in self._awaited.pop(ended.si_pid, []):
            if not future.done():
                future.set_result(how)
        try:
            self._on_exit(ended.si_pid, how)
        except Exception as error:  # one bad handler must not leave the others unreaped
            loop.call_exception_handler({"message": "exit handler failed", "exception": error})
        return True

    def _remember(self, process: ProcessId, how: Exit) -> None:
        self._recent[process] = how
        if len(self._recent) > _REMEMBERED:
            del self._recent[next(iter(self._recent))]


def become_subreaper() -> bool:
    """Make orphans of our descendants our children; False where the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) == 0


def _may_be_reaped(process: ProcessId) -> bool:
    try:
        entry = look_up(process.pid)
    except OSError:  # no descriptor is left to look with
        return True
    return entry is not None and entry.process == process and entry.ppid == os.getpid()


def _how(ended: os.waitid_result) -> Exit:
    if ended.si_code == os.CLD_EXITED:
        return Exit(code=ended.si_status)
    return Exit(signal=ended.si_status)
