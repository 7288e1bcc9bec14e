"""The one thread that writes the state database."""

from __future__ import annotations

import sqlite3
import threading
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline, clamp_timeout, elapsed
from stepwarden.edge import journal_file, state_file, state_schema, state_tables
from stepwarden.edge.journal import Journal
from stepwarden.edge.old_life_notes import remove_old_notes
from stepwarden.edge.state_copy import open_copy, remove_left_copies
from stepwarden.edge.state_file import NAME
from stepwarden.edge.state_image import StateImage
from stepwarden.edge.state_tables import Changes
from stepwarden.edge.worker_notes import WorkerNotes

RETRY_SECONDS = 10.0
"""How long a database that failed is left alone."""

HUNG_SECONDS = 5.0
"""A disk that has not answered for so long is said."""

_KEEP_SAID = 5
_ENDED = "the state database is closed"


class StateWriter:
    """Opens the database and commits what `image` and `journal` have for it.

    While it takes nothing, `notes` get what is told of workers. `scratch`: where a copy may be
    made, to read a database that cannot be opened.

    `opened` is set when the first attempt to open it is over, whatever came of it.
    """

    def __init__(
        self,
        directory: Path,
        scratch: Path,
        boot: str,
        image: StateImage,
        journal: Journal,
        notes: WorkerNotes,
        clock: Clock,
    ) -> None:
        self._directory = directory
        self._path = directory / NAME
        self._scratch = scratch
        self._boot = boot
        self._image = image
        self._journal = journal
        self._notes = notes
        self._clock = clock
        self._lock = threading.Lock()
        self._tickets: list[tuple[Future[str], bool]] = []
        self._news = threading.Event()
        self._closing = threading.Event()
        self._database: sqlite3.Connection | None = None
        self._identity = (0, 0)
        self._ended = False
        self._known = False
        self._suspect = True
        self._busy_since: float | None = None
        self._trouble = ""
        self._aside: list[str] = []
        self._old_notes = False
        self.opened = threading.Event()
        self._thread = threading.Thread(target=self._run, name="state", daemon=True)
        self._thread.start()

    @property
    def trouble(self) -> str:
        """Why the database takes nothing now; "" while it does."""
        busy = self._busy_since
        if busy is not None and elapsed(busy, self._clock.monotonic()) > HUNG_SECONDS:
            return f"the state database {self._path} has not answered for {HUNG_SECONDS:g} s"
        return self._trouble

    @property
    def said(self) -> list[str]:
        """What was set aside, and the trouble of now."""
        return [*self._aside, self.trouble]

    def wake(self) -> None:
        """There is something to write."""
        self._news.set()

    def ask(self, *, through: bool = False) -> Future[str]:
        """A ticket for all that was noted so far: "" when it is committed, or why it is not.

        `through`: committed so that it outlives a power cut.
        """
        ticket: Future[str] = Future()
        with self._lock:
            if not self._ended:
                self._tickets.append((ticket, through))
                self._news.set()
                return ticket
        ticket.set_result(_ENDED)
        return ticket

    def take_away_old_notes(self) -> None:
        """The notes of release 0.1 are in the image: they go when that is committed."""
        self._old_notes = True
        self._news.set()

    def close(self, limit: float) -> None:
        """Commit what is left, close the file and end the thread, within `limit` seconds."""
        self._closing.set()
        self._news.set()
        self._thread.join(clamp_timeout(limit))

    def _run(self) -> None:
        healthy = self._turn()
        if not self._known:
            self._take_in_copy()
        self.opened.set()
        retry = Deadline.never()
        while not self._closing.is_set():
            if healthy:
                self._news.wait()
            else:
                retry = Deadline.after(self._clock.monotonic(), RETRY_SECONDS)
                self._wait_out(retry)
            self._news.clear()
            healthy = self._turn()
        self._turn()
        self._close()
        with self._lock:
            self._ended = True
        self._answer(self._take_tickets(), _ENDED)

    def _wait_out(self, retry: Deadline) -> None:
        """Leave the database alone for a while; who asks meanwhile is told at once."""
        while not retry.passed(self._clock.monotonic()) and not self._closing.is_set():
            self._rescue()
            self._answer(self._take_tickets(), self._trouble)
            self._news.wait(clamp_timeout(retry.remaining(self._clock.monotonic())))
            self._news.clear()

    def _turn(self) -> bool:
        """Commit all there is; False where the database does not take it."""
        tickets = self._take_tickets()
        self._busy_since = self._clock.monotonic()
        try:
            self._open_if_needed()
            self._commit(through=any(through for _, through in tickets))
        except (sqlite3.Error, OSError, state_file.UnusableError) as error:
            self._fail(error)
        except Exception as error:  # a fault of ours must not end the thread
            self._fail(error)
        else:
            self._trouble = ""
        finally:
            self._busy_since = None
        if self._trouble:
            self._rescue()
        self._answer(tickets, self._trouble)
        return not self._trouble

    def _rescue(self) -> None:
        """What is told of workers meanwhile outlives a kill elsewhere."""
        if self._image.workers_pending():
            with suppress(OSError):  # who needs to know asks, and is told
                self._notes.keep()

    def _open_if_needed(self) -> None:
        if self._database is not None:
            if state_file.identity(self._path) == self._identity:
                return
            self._close()  # taken away or replaced under our feet
            self._suspect = True
        opened = state_file.open_state(self._directory, self._clock.wall(), thorough=self._suspect)
        self._database = opened.database
        self._identity = state_file.identity(self._path)
        if opened.said:
            self._aside = [*self._aside, opened.said][-_KEEP_SAID:]
        if self._known:
            self._image.all_stale()
        else:
            self._take_in(opened.database)
        self._known = True
        self._suspect = False

    def _take_in(self, database: sqlite3.Connection) -> None:
        """The first time: what an earlier daemon left."""
        state_tables.forget_other_boots(database, self._boot)
        self._adopt(database)

    def _take_in_copy(self) -> None:
        """It cannot be opened, full or read-only or locked: what an earlier daemon left is read."""
        remove_left_copies(self._scratch)
        try:
            with open_copy(state_file.present(self._directory), self._scratch) as database:
                state_schema.migrate(database)
                state_schema.check(database)
                self._adopt(database)
        except FileNotFoundError:
            return  # there was none
        except Exception as error:
            text = f"what the state database {self._path} holds is not known: {error}"
            self._aside = [*self._aside, text][-_KEEP_SAID:]

    def _adopt(self, database: sqlite3.Connection) -> None:
        loaded = state_tables.load(database, self._boot)
        newest, lived = journal_file.newest_id(database), journal_file.incarnations(database)
        self._image.adopt(loaded, self._boot)
        self._aside = [*self._aside, *loaded.bad][-_KEEP_SAID:]
        self._journal.go_on_after(newest, lived)

    def _commit(self, *, through: bool) -> None:
        if self._database is None:
            return
        batch, changes = self._journal.batch(), self._image.take()
        try:
            whole = Changes(
                changes.lives,
                changes.workers,
                changes.processes,
                changes.learned,
                events=batch,
                rewrite=changes.rewrite,
                prune_to=self._journal.prune_to(batch),
            )
            if whole or through:
                state_tables.commit(self._database, whole, through=through)
        except BaseException:
            self._image.give_back(changes)
            raise
        self._journal.written(batch)
        with suppress(OSError):  # the database has it all
            self._notes.keep()
        if self._old_notes:
            self._old_notes = False
            remove_old_notes(self._directory)

    def _fail(self, error: Exception) -> None:
        self._trouble = f"the state database {self._path} cannot be used: {error}"
        self._suspect = self._suspect or state_file.says_damage(error)
        self._close()

    def _close(self) -> None:
        if self._database is not None:
            with suppress(sqlite3.Error):
                self._database.close()
            self._database = None

    def _take_tickets(self) -> list[tuple[Future[str], bool]]:
        with self._lock:
            tickets, self._tickets = self._tickets, []
        return tickets

    def _answer(self, tickets: list[tuple[Future[str], bool]], reason: str) -> None:
        for ticket, _ in tickets:
            with suppress(Exception):  # nobody waits for it any more
                ticket.set_result(reason)
