"""The state store: lives, workers, processes and events in one SQLite database.

What is noted is true in memory at once; a thread of its own brings it to the database, all that
has gathered in one transaction. Trouble with the database (full, read-only, locked, damaged, of
another version) never stops supervision: it is said, the database is tried again, and what must
outlive a kill is kept in the runtime directory meanwhile. Make it only where the lock of the state
directory is held.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from stepwarden.clock import Clock, SystemClock
from stepwarden.core.deadline import Deadline, clamp_timeout
from stepwarden.core.evidence import ProcessId
from stepwarden.edge.host import this_host
from stepwarden.edge.journal import KEEP_EVENTS, Journal
from stepwarden.edge.life_mirror import LifeMirror
from stepwarden.edge.old_life_notes import old_notes
from stepwarden.edge.state_file import NAME
from stepwarden.edge.state_image import StateImage
from stepwarden.edge.state_records import (
    LifeRecord,
    Noted,
    StampedLife,
    StampedWorker,
    WorkerRecord,
)
from stepwarden.edge.state_writer import StateWriter
from stepwarden.edge.worker_notes import WorkerNotes

NOTE_SECONDS = 2.0
"""How long a start may be held up until it is noted."""

_OPEN_SECONDS = 10.0
_CLOSE_SECONDS = 5.0
_DATABASE_SHARE = 0.75
"""Of the limit of a wait: what is left is for the copy in the runtime directory."""


class StateStore:
    """The memory of this supervisor. `journal` holds its events.

    Opening waits for the database for some seconds and never raises; `trouble` says what is wrong.
    """

    def __init__(
        self,
        state_dir: Path,
        runtime_dir: Path,
        clock: Clock | None = None,
        keep_events: int = KEEP_EVENTS,
    ) -> None:
        self._state_dir = state_dir
        self._clock = clock or SystemClock()
        self._boot = this_host().boot
        self._image = StateImage()
        self._mirror = LifeMirror(runtime_dir)
        self._notes = WorkerNotes(runtime_dir, self._image)
        # One thread: copies of the same life are written in the order they were noted.
        self._copier = ThreadPoolExecutor(1, "state-copy")
        self._said: list[str] = []
        self._old_notes_read = False
        self.path = state_dir / NAME
        self.journal = Journal(self.path, keep_events, self._wake, lambda: self.trouble)
        self._read_mirror()
        self._read_notes()
        self._writer = StateWriter(
            state_dir,
            runtime_dir,
            self._boot,
            self._image,
            self.journal,
            self._notes,
            self._clock,
        )
        self._writer.opened.wait(_OPEN_SECONDS)

    @property
    def trouble(self) -> str:
        """What is wrong with the state on disk, or was set aside; "" while all is well."""
        return "; ".join(text for text in (*self._said, *self._writer.said) if text)

    # Lives

    async def note_life(self, record: LifeRecord, limit: float = NOTE_SECONDS) -> Noted:
        """Note a life, or more of it, and wait until that outlives a kill of this daemon.

        At most `limit` seconds. It is known at once here, and the database gets it later where it
        cannot take it now.
        """
        deadline, share = self._deadlines(limit)
        life = StampedLife(self._clock.monotonic(), record)
        self._image.put_life(life)
        ticket = self._writer.ask()
        copy = self._copy(self._mirror.write, life)
        reason = await self._settled(ticket, share)
        where = await self._copied(copy, deadline)
        if reason and where:
            return Noted(False, f"{reason}; and {where}")
        return Noted(True, reason)

    async def forget_life(self, incarnation: str, limit: float = NOTE_SECONDS) -> Noted:
        """Every process of this life is gone: its note and its processes may go.

        A note that could not be taken away does no harm: it leads to nobody.
        """
        deadline, share = self._deadlines(limit)
        try:
            # The copy first: one that is left over would come back without its processes.
            where = await self._copied(self._copy(self._mirror.remove, incarnation), share)
        finally:
            self._image.drop_life(incarnation)
            ticket = self._writer.ask()
        reason = await self._settled(ticket, deadline)
        return Noted(not reason and not where, reason or where)

    def lives(self) -> list[LifeRecord]:
        """Lives of this boot that are not forgotten, in the order they were noted.

        The first call takes over the notes of release 0.1 in the state directory.
        """
        if not self._old_notes_read:
            self._old_notes_read = True
            self._take_over_notes()
        return self._image.lives()

    # Workers

    def note_worker(self, record: WorkerRecord) -> None:
        """Keep this of a worker; the newest wins. Written soon."""
        if self._image.put_worker(StampedWorker(self._boot, self._clock.monotonic(), record)):
            self._wake()

    def forget_worker(self, worker: str) -> None:
        """The configuration no longer names it."""
        self._image.drop_worker(worker)
        self._wake()

    def workers(self) -> dict[str, WorkerRecord]:
        """The newest record of every worker, of whatever boot."""
        return self._image.workers()

    async def durable(self, limit: float = NOTE_SECONDS) -> Noted:
        """Wait until all that was noted so far outlives a kill of this daemon; at most `limit` s.

        In the database it outlives even a power cut. Where that takes nothing, the records of
        workers are kept in the runtime directory: `reason` says so.
        """
        deadline, share = self._deadlines(limit)
        reason = await self._settled(self._writer.ask(through=True), share)
        if not reason:
            return Noted(True)
        where = await self._copied(self._copy(self._notes.keep), deadline)
        return Noted(not where, f"{reason}; and {where}" if where else reason)

    def copy_again(self) -> None:
        """The runtime directory was taken away: write the second copies anew, and wait for none."""
        for life in self._image.stamped_lives():
            self._copy(self._mirror.write, life)
        self._copy(self._notes.keep_again)

    # What is usual

    def learned(self, key: str) -> str | None:
        """What was kept under this key; None: nothing. It counts as used now."""
        body = self._image.learned(key)
        if body is not None:
            self._wake()
        return body

    def note_learned(self, key: str, worker: str, body: str) -> None:
        """Keep this of what is usual; the newest wins. Written soon."""
        self._image.put_learned(key, worker, body)
        self._wake()

    def forget_learned(self, key: str) -> None:
        """Keep it no more."""
        self._image.drop_learned(key)
        self._wake()

    # Processes

    def note_processes(self, incarnation: str, seen: Collection[ProcessId]) -> None:
        """These belong or belonged to a life that is noted. Added to what is known."""
        if self._image.put_processes(incarnation, seen):
            self._wake()

    def drop_processes(self, incarnation: str, gone: Collection[ProcessId]) -> None:
        """These are confirmed gone; a life of years does not gather them for ever."""
        if self._image.drop_processes(incarnation, gone):
            self._wake()

    def processes(self, incarnation: str) -> set[ProcessId]:
        """Every process noted of a life, gone or not."""
        return self._image.processes(incarnation)

    # The whole

    def flush(self, timeout: float = _CLOSE_SECONDS) -> bool:
        """Wait until everything noted so far is in the database; False if it is not in time."""
        with suppress(TimeoutError):
            return not self._writer.ask().result(clamp_timeout(timeout))
        return False

    def close(self) -> None:
        """Write what is left, within a few seconds, and close the database."""
        self._writer.close(_CLOSE_SECONDS)
        self._copier.shutdown(wait=False)

    def _wake(self) -> None:
        self._writer.wake()

    def _read_mirror(self) -> None:
        try:
            content = self._mirror.read(self._boot, self._clock.wall())
        except OSError as error:
            text = f"the notes of lives in {self._mirror.directory} cannot be read: {error}"
            self._said.append(text)
            return
        self._said += content.bad
        for life in content.lives:
            self._image.put_life(life)

    def _read_notes(self) -> None:
        workers, bad = self._notes.read(self._clock.wall())
        self._said += [bad] if bad else []
        for worker in workers:
            self._image.put_worker(worker)

    def _take_over_notes(self) -> None:
        records, bad = old_notes(self._state_dir, self._boot)
        self._said += bad
        for record in records:
            self._image.put_life(StampedLife(0.0, record))
        if (self._state_dir / "lives").is_dir():
            self._writer.take_away_old_notes()

    async def _settled(self, ticket: Future[str], deadline: Deadline) -> str:
        """What came of a commit: "" or why not, when the deadline has passed at the latest."""
        waited = asyncio.wrap_future(ticket)
        timeout = deadline.remaining(self._clock.monotonic())
        await asyncio.wait({waited}, timeout=clamp_timeout(timeout))
        if waited.done():
            return waited.result()
        return self._writer.trouble or f"the state database {self.path} does not answer"

    async def _copied(self, copy: Future[None], deadline: Deadline) -> str:
        """What came of writing in the runtime directory: "" or why it is not there."""
        waited = asyncio.wrap_future(copy)
        timeout = deadline.remaining(self._clock.monotonic())
        await asyncio.wait({waited}, timeout=clamp_timeout(timeout))
        if not waited.done():
            waited.add_done_callback(_forget)
            return f"{self._mirror.directory.parent} does not answer"
        error = waited.exception()
        return f"no copy in {self._mirror.directory.parent}: {error}" if error is not None else ""

    def _copy(self, write: Callable[..., None], *given: object) -> Future[None]:
        """Do it in the one thread for copies; after the close here and now, for nobody waits."""
        try:
            return self._copier.submit(write, *given)
        except RuntimeError:
            done: Future[None] = Future()
            try:
                write(*given)
            except OSError as error:
                done.set_exception(error)
            else:
                done.set_result(None)
            return done

    def _deadlines(self, limit: float) -> tuple[Deadline, Deadline]:
        """Of the whole wait, and of the database's share of it."""
        now = self._clock.monotonic()
        share = _DATABASE_SHARE * (clamp_timeout(limit) or 0.0)
        return Deadline.after(now, limit), Deadline.after(now, share)


def _forget(copy: asyncio.Future[None]) -> None:
    """Nobody waits for it any more: its error is nobody's."""
    if not copy.cancelled():
        copy.exception()
