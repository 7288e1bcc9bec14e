"""Ending a whole family: TERM, CONT for what is stopped, grace, KILL, and gone for certain."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline, clamp_timeout, earliest, elapsed
from stepwarden.core.evidence import ProcessId
from stepwarden.edge.family import Family
from stepwarden.edge.process_probe import alive
from stepwarden.edge.process_table import ProcessTable
from stepwarden.edge.signals import send
from stepwarden.edge.snapshots import Snapshots
from stepwarden.waiting import timeout_for

_FIRST_LOOK = 0.005  # seconds to the first look for new members; each wait doubles
_SLOWEST_LOOK = 0.5  # ends are seen at once; this is for members born meanwhile
_SEARCH_SECONDS = 10.0  # for one look at the environments of strangers
_WATCHED = 64  # descriptors of ours that one burial may take; the looks find the rest
_NAMED = 10  # pids in one sentence


async def bury(
    family: Family,
    grace: float,
    kill_wait: float,
    clock: Clock,
    report: Callable[[str], None],
    *,
    stop_signal: int = signal.SIGTERM,
    snapshots: Snapshots | None = None,
    ordered_at: float | None = None,
) -> frozenset[ProcessId]:
    """End every process of `family`; returns those that cannot be ended, none as a rule.

    `stop_signal` goes to every member, not to main alone: a shell that waits for its child passes
    nothing on, and a worker in a session of its own would outlive a polite main. After `grace`
    seconds KILL goes to what is left, and `kill_wait` seconds later the rest is returned. Members
    that are born meanwhile get the same. `report` takes one sentence for each stage. `snapshots`:
    shared with other burials; None: its own. `ordered_at`: when the burial was ordered, with the
    family as it is; those that are ordered together share their first look. None: now.

    A family with a control group is gone when that is empty as well, and the group is removed.
    """
    began = clock.monotonic()
    since = began if ordered_at is None else ordered_at
    burial = _Burial(family, clock, report, snapshots or Snapshots(clock), since)
    if not await burial.stage(stop_signal, grace):
        await burial.stage(signal.SIGKILL, kill_wait)
    left = burial.left()
    if left:
        report(f"cannot be ended: {_named(left)}")
    else:
        report(f"every process is gone after {elapsed(began, clock.monotonic()):.2f} s")
    return left


async def still_there(
    family: Family, clock: Clock, report: Callable[[str], None], snapshots: Snapshots | None = None
) -> frozenset[ProcessId]:
    """Who of `family` is left, with one look and without any signal; its empty group is removed."""
    burial = _Burial(family, clock, report, snapshots or Snapshots(clock), clock.monotonic())
    await burial.search()
    return burial.left()


class _Burial:
    def __init__(
        self,
        family: Family,
        clock: Clock,
        report: Callable[[str], None],
        snapshots: Snapshots,
        since: float,
    ) -> None:
        self._family = family
        self._clock = clock
        self._report = report
        self._snapshots = snapshots
        self._table = ProcessTable([])
        self._relies_on = since  # the last signal or exit; no older snapshot counts
        self._said_blind = False
        self._said_cgroup = False
        self._said_unread: frozenset[ProcessId] = frozenset()

    def look(self) -> set[ProcessId]:
        """The members that can still run, by a snapshot taken after the last signal and exit.

        Where /proc cannot be read (no descriptor is left), nobody is gone that was there before.
        """
        try:
            self._table = self._snapshots.table(self._relies_on)
        except OSError as error:
            self._blind(error)
            return set(self._family.known)
        self._family.observe(self._table)
        return self._family.members(self._table)

    def left(self) -> frozenset[ProcessId]:
        """Who is left in the end; without anybody, the control group is removed."""
        left = frozenset(self.look())
        cgroup = self._family.cgroup
        if left or cgroup is None:
            return left
        if self._family.populated:
            self._report(f"somebody who cannot be seen from here is left in {cgroup.path}")
            return frozenset({self._family.main})
        if cgroup.populated or not cgroup.remove():
            self._report(f"its control group {cgroup.path} stays: others are in it")
        return left

    def _blind(self, error: OSError) -> None:
        if not self._said_blind:
            self._said_blind = True
            self._report(f"cannot look at the processes now: {error.strerror}; trying on")

    async def search(self) -> None:
        """Look for members without known ancestry, too."""
        self.look()
        if await self._search():
            self._relies_on = self._clock.monotonic()

    async def stage(self, sig: int, limit: float) -> bool:
        """Send `sig` to each member once; True: all are gone within `limit` seconds of the first.

        Finding them first can take a while on a large host; that is no part of anybody's grace.
        """
        done: set[ProcessId] = set()
        deadline = Deadline.never()
        pause = _FIRST_LOOK
        while True:
            members = self.look()
            # Before it may be said that all are gone, those without known ancestry are looked for.
            if (not members or not done) and await self._search():
                # An older snapshot could lack what was adopted just now, and it would be forgotten.
                self._relies_on = self._clock.monotonic()
                members = self.look()
            if not members and not self._family.populated:
                return True
            if sig == signal.SIGKILL:
                self._kill_cgroup()
            if members - done:
                pause = _FIRST_LOOK
                self._signal(members - done, sig)
                self._relies_on = self._clock.monotonic()
            self._wake(members)
            now = self._clock.monotonic()
            if deadline.at is None:
                deadline = Deadline.after(now, limit)
            done |= members
            if deadline.passed(now):
                return False
            wait = earliest(deadline, Deadline.after(now, pause)).remaining(now)
            self._relies_on = max(self._relies_on, await self._rest(members, wait))
            pause = min(2 * pause, _SLOWEST_LOOK)

    async def _rest(self, members: Collection[ProcessId], wait: float | None) -> float:
        if members or self._family.cgroup is None:
            return await _until_gone(members, wait, self._clock)
        # Somebody was born in there after the last snapshot.
        await self._family.cgroup.until_empty(wait)
        return self._clock.monotonic()

    def _kill_cgroup(self) -> None:
        if self._family.populated and self._family.kill_cgroup():
            self._relies_on = self._clock.monotonic()
            if not self._said_cgroup:
                self._said_cgroup = True
                self._report("SIGKILL sent to its whole control group at once")

    async def _search(self) -> bool:
        """True where members without known ancestry were found."""
        deadline = Deadline.after(self._clock.monotonic(), _SEARCH_SECONDS)
        found = await self._family.search(self._table, timeout_for(deadline, self._clock))
        unread = self._family.unread
        if unread - self._said_unread:
            self._said_unread |= unread
            self._report(f"cannot be looked at, and so not taken for ours: {_named(unread)}")
        return found

    def _signal(self, members: Collection[ProcessId], sig: int) -> None:
        sent = [process for process in sorted(members) if send(process, sig)]
        if sent:
            self._report(f"{signal.Signals(sig).name} sent to {_named(sent)}")

    def _wake(self, members: Iterable[ProcessId]) -> None:
        """A stopped process takes no TERM until it goes on, and a frozen one neither."""
        cgroup = self._family.cgroup
        if cgroup is not None and cgroup.thaw():
            self._report(f"its frozen control group {cgroup.path} goes on")
        for process in sorted(members):
            entry = self._table.find(process)
            if entry is not None and entry.stopped:
                send(process, signal.SIGCONT)
                self._report(f"SIGCONT sent to stopped pid {process.pid}")


async def _until_gone(members: Collection[ProcessId], timeout: float | None, clock: Clock) -> float:
    """Wait until all (of the first few) of `members` have ended, or until the timeout.

    Returns when the last of those that ended was seen to. Many that end together are seen together,
    before any of their burials looks: one snapshot is enough for all of these.
    """
    seen_at = 0.0
    loop = asyncio.get_running_loop()
    waiting: set[int] = set()
    all_gone = loop.create_future()

    def ended(descriptor: int) -> None:
        nonlocal seen_at
        seen_at = clock.monotonic()
        close(descriptor)

    def close(descriptor: int) -> None:
        loop.remove_reader(descriptor)
        os.close(descriptor)
        waiting.discard(descriptor)
        if not waiting and not all_gone.done():
            all_gone.set_result(None)

    try:
        for process in sorted(members)[:_WATCHED]:
            descriptor = _open(process)
            if descriptor is not None:
                waiting.add(descriptor)
                loop.add_reader(descriptor, ended, descriptor)
        # Without a descriptor (our limit is reached) the timeout alone says when to look again.
        if waiting or any(map(alive, members)):
            with suppress(TimeoutError):
                await asyncio.wait_for(all_gone, clamp_timeout(timeout))
    finally:
        for descriptor in list(waiting):
            close(descriptor)
    return seen_at


def _open(process: ProcessId) -> int | None:
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return None
    if alive(process):
        return descriptor
    os.close(descriptor)
    return None


def _named(processes: Collection[ProcessId]) -> str:
    pids = sorted(process.pid for process in processes)
    names = ", ".join(map(str, pids[:_NAMED]))
    more = f" and {len(pids) - _NAMED} more" if len(pids) > _NAMED else ""
    return f"{len(pids)} process{'es' if len(pids) > 1 else ''}: {names}{more}"
