"""Which processes belong to one incarnation, remembered while they live.

After a parent's death nothing in the kernel says whose child a process was. So every snapshot is
used to note each (pid, start time) that is a descendant of a known one or in a session that a
known one leads. What was missed (a double fork between two snapshots) is found by the marker in
its environment or by its use of the incarnation's page directory.

Where the incarnation has a control group, whoever is in there belongs to it, whatever it did. And
where an earlier daemon wrote down whom it saw, those are known from the start.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

from stepwarden.core.evidence import ProcessId
from stepwarden.edge.cgroup import Cgroup
from stepwarden.edge.process_probe import identify
from stepwarden.edge.process_table import Proc, ProcessTable
from stepwarden.edge.signals import is_untouchable
from stepwarden.edge.traces import Answer, TraceReader

OnSeen = Callable[[frozenset[ProcessId]], None]
"""Takes members that were seen for the first time."""


def _nobody() -> Collection[int]:
    return ()


def _forget(_: frozenset[ProcessId]) -> None:
    return


def _is_shared(inside: frozenset[int]) -> bool:
    """Whether a control group is no incarnation's alone, whatever was written down: we are there.

    Taken for one, such a group would make members of half the host.
    """
    return bool(inside & {1, os.getpid()})


class Family:
    """The processes of one incarnation.

    `incarnation`: the value of its marker in the environment. `page_dir`: where its pages lie.
    `barred`: gives the pids that are never members with all below them, whatever trace they carry:
    other families' main processes, processes of ours that write a worker's output. The supervisor
    is none either. `traces`: reads environments and mappings for it; None: a reader of its own.
    `cgroup`: the control group of this incarnation alone. `seen`: whom an earlier daemon of this
    boot saw as members; the living among them are members. `on_seen`: told of each other new
    member once, on the loop, so that a later daemon may be told. `on_gone`: told of those that are
    gone for sure and lead no living session, so that nobody keeps them for ever.
    """

    def __init__(
        self,
        main: ProcessId,
        incarnation: str,
        page_dir: Path | None = None,
        barred: Callable[[], Collection[int]] = _nobody,
        traces: TraceReader | None = None,
        *,
        cgroup: Cgroup | None = None,
        seen: Iterable[ProcessId] = (),
        on_seen: OnSeen = _forget,
        on_gone: OnSeen = _forget,
    ) -> None:
        self.main = main
        self.cgroup = cgroup
        self._incarnation = incarnation
        self._page_dir = page_dir
        self._barred = barred
        self._known: set[ProcessId] = {main, *seen}
        self._told = frozenset(self._known)
        self._on_seen = on_seen
        self._on_gone = on_gone
        # A dead leader's session can still be told by these, as long as a member lives in it.
        self._leaders = {process.pid: process.start_ticks for process in self._known}
        self._sessions: dict[int, int] = {}  # session: start ticks of its leader
        self._traces = TraceReader() if traces is None else traces
        self._asked: dict[ProcessId, Future[Answer]] = {}  # orphans whose environment is read now
        self._strangers: set[ProcessId] = set()  # orphans whose environment was read once
        self.unread: frozenset[ProcessId] = frozenset()

    @property
    def known(self) -> frozenset[ProcessId]:
        """Every remembered process that was alive at the last `observe`."""
        return frozenset(self._known)

    def adopt(self, process: ProcessId) -> bool:
        """Remember a process that proved that it belongs here (it holds a page's lock).

        False, and nothing is remembered, for the supervisor, its ancestors and other families.
        """
        if is_untouchable(process.pid) or process.pid in self._barred():
            return False
        self._known.add(process)
        return True

    def observe(self, table: ProcessTable) -> None:
        """Take a snapshot in: note new members, forget those that are gone. Cheap."""
        barred = self._never()
        self._drop_sessions_taken_over(table)
        self._known |= self._in_our_cgroup(table, barred)
        while True:
            found = table.descendants(self._known, barred)
            self._note_sessions(found)
            missed = self._in_our_sessions(table, barred) | self._marked_orphans(table, barred)
            if missed <= found.keys():
                break
            self._known |= missed
        self._known = set(found)
        inhabited = {entry.session for entry in found.values()}
        self._sessions = {
            session: start_ticks
            for session, start_ticks in self._sessions.items()
            if session in inhabited
        }
        self._tell()

    def _never(self) -> frozenset[int]:
        return frozenset(self._barred()) - {self.main.pid} | {os.getpid()}

    def _tell(self) -> None:
        fresh = frozenset(self._known - self._told)
        # A dead leader still tells whose its session is, as long as somebody lives in it.
        gone = frozenset(p for p in self._told - self._known if p.pid not in self._sessions)
        self._told = (self._told | fresh) - gone
        if fresh:
            self._on_seen(fresh)
        if gone:
            self._on_gone(gone)

    @property
    def populated(self) -> bool:
        """Whether somebody who may be a member runs in its control group; False without one."""
        if self.cgroup is None or not self.cgroup.populated:
            return False
        try:
            inside = self.cgroup.processes()
        except OSError:
            return True
        # Nobody to be seen: they may have just been born, or be hidden from us.
        return not inside or not (_is_shared(inside) or inside <= self._never())

    def kill_cgroup(self) -> bool:
        """SIGKILL for its whole control group at once; False where each has to be signalled.

        So it is where somebody stands in there who must live.
        """
        if self.cgroup is None:
            return False
        try:
            inside = self.cgroup.processes()
        except OSError:
            return False
        if inside & self._never() or any(map(is_untouchable, inside)):
            return False
        return self.cgroup.kill()

    def members(self, table: ProcessTable) -> set[ProcessId]:
        """The remembered processes that can still run, by this snapshot."""
        return {
            process
            for process in self._known
            if (entry := table.find(process)) is not None and not entry.gone
        }

    async def search(self, table: ProcessTable, timeout: float | None) -> bool:
        """Look at every process younger than main for our marker and pages; True: some were found.

        Costly, for burying only; the loop gets its turns meanwhile. `unread` names those that could
        not be looked at within `timeout` seconds; they hang in the kernel, as a rule.
        """
        barred = table.descendants(
            entry.process for pid in self._barred() if (entry := table.by_pid.get(pid))
        )
        suspects = [
            entry.process
            for entry in table.by_pid.values()
            if entry.start_ticks >= self.main.start_ticks
            and not entry.gone
            and entry.process not in self._known
            and entry.process not in barred
        ]
        found, unread = await self._traces.search(
            suspects, self._incarnation, self._page_dir, timeout
        )
        self.unread = frozenset(unread)
        adopted = [process for process in found if self.adopt(process)]
        return bool(adopted)

    def _in_our_cgroup(self, table: ProcessTable, barred: frozenset[int]) -> set[ProcessId]:
        if self.cgroup is None:
            return set()
        inside: frozenset[int] = frozenset()
        with suppress(OSError):  # no descriptor is left: who is in there is seen with a later look
            inside = self.cgroup.processes()
        if _is_shared(inside):
            return set()
        newcomers = inside - barred - {process.pid for process in self._known}
        entries = (table.by_pid.get(pid) for pid in newcomers if not is_untouchable(pid))
        # The snapshot is older than the list: a pid may have been a stranger's then.
        return {e.process for e in entries if e is not None and identify(e.pid) == e.process}

    def _note_sessions(self, found: dict[ProcessId, Proc]) -> None:
        for process, entry in found.items():
            if entry.session == process.pid:
                self._sessions[entry.session] = process.start_ticks
            elif entry.session in self._leaders:
                # A member got it from a leader that was known: nobody enters another's session.
                self._sessions[entry.session] = self._leaders[entry.session]

    def _drop_sessions_taken_over(self, table: ProcessTable) -> None:
        # The kernel gives a session's number to nobody else while one process is in it. A leader
        # with another start time so means that ours are gone and the number belongs to strangers.
        for session, start_ticks in list(self._sessions.items()):
            leader = table.by_pid.get(session)
            if leader is not None and leader.start_ticks != start_ticks:
                del self._sessions[session]

    def _in_our_sessions(self, table: ProcessTable, barred: frozenset[int]) -> set[ProcessId]:
        return {
            entry.process
            for session in self._sessions
            for entry in table.in_session(session)
            if entry.pid not in barred
        }

    def _marked_orphans(self, table: ProcessTable, barred: frozenset[int]) -> set[ProcessId]:
        """Children that the kernel gave to us, the subreaper, and that carry our marker.

        What is asked with one snapshot is answered by one of the next: nothing here may block.
        """
        orphans = {
            entry.process
            for entry in table.children(os.getpid())
            if entry.pid not in barred and entry.process not in self._known
        }
        self._strangers &= orphans
        marked = self._answered() & orphans
        for process in orphans - self._strangers - self._asked.keys() - marked:
            self._asked[process] = self._traces.ask(process, self._incarnation)
        return marked

    def _answered(self) -> set[ProcessId]:
        marked: set[ProcessId] = set()
        for process, answer in list(self._asked.items()):
            if not answer.done():
                continue
            del self._asked[process]
            if answer.result():
                marked.add(process)
            elif answer.result() is False:
                self._strangers.add(process)  # else it hangs, and is asked about again
        return marked
