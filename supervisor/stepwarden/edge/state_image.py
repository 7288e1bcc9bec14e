"""The state in memory: what is true, and which of it the database does not have yet.

The database is the image of this, never the other way round, except once at the start. So a
database that fails, is replaced or comes back late costs nothing that this daemon knows.
"""

from __future__ import annotations

import threading
from collections.abc import Collection

from stepwarden.core.evidence import ProcessId
from stepwarden.edge.learned_tables import LearnedTables
from stepwarden.edge.state_records import (
    LifeRecord,
    StampedLife,
    StampedWorker,
    WorkerRecord,
    later,
)
from stepwarden.edge.state_tables import Changes, Loaded


class StateImage:
    """Lives, workers, processes, what is usual. Every method may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lives: dict[str, StampedLife] = {}
        self._workers: dict[str, StampedWorker] = {}
        self._processes: dict[str, set[ProcessId]] = {}
        self._stale_lives: set[str] = set()
        self._stale_workers: set[str] = set()
        self._stale_processes: set[tuple[str, ProcessId]] = set()
        self._learned = LearnedTables()
        self._rewrite = False

    def lives(self) -> list[LifeRecord]:
        """Every life noted and not forgotten, in the order they were noted."""
        with self._lock:
            found = sorted(self._lives.values(), key=lambda life: life.noted_at)
        return [life.record for life in found]

    def stamped_lives(self) -> list[StampedLife]:
        """The same, and when each was noted, in no order."""
        with self._lock:
            return list(self._lives.values())

    def workers(self) -> dict[str, WorkerRecord]:
        """The newest record of every worker."""
        with self._lock:
            return {name: worker.record for name, worker in self._workers.items()}

    def stamped_workers(self) -> list[StampedWorker]:
        """The same, and when each was noted."""
        with self._lock:
            return list(self._workers.values())

    def workers_pending(self) -> bool:
        """Whether the next commit has something of a worker to bring."""
        with self._lock:
            return bool(self._stale_workers)

    def processes(self, incarnation: str) -> set[ProcessId]:
        """Every process noted of a life."""
        with self._lock:
            return set(self._processes.get(incarnation, ()))

    def put_life(self, life: StampedLife) -> None:
        """Note a life, unless a newer note of it is there."""
        name = life.record.incarnation
        with self._lock:
            known = self._lives.get(name)
            if known is not None and known.noted_at > life.noted_at:
                return
            self._lives[name] = life
            self._stale_lives.add(name)

    def drop_life(self, incarnation: str) -> None:
        """Forget a life and its processes."""
        with self._lock:
            self._lives.pop(incarnation, None)
            self._stale_lives.add(incarnation)
            gone = self._processes.pop(incarnation, set())
            self._stale_processes |= {(incarnation, process) for process in gone}

    def put_worker(self, worker: StampedWorker) -> bool:
        """Note a worker; False where nothing of it changed."""
        name = worker.record.worker
        with self._lock:
            known = self._workers.get(name)
            if known is not None and known.record == worker.record:
                return False
            self._workers[name] = worker
            self._stale_workers.add(name)
        return True

    def drop_worker(self, worker: str) -> None:
        """Forget what was noted of a worker."""
        with self._lock:
            self._workers.pop(worker, None)
            self._stale_workers.add(worker)

    def put_processes(self, incarnation: str, seen: Collection[ProcessId]) -> bool:
        """Add to the processes of a life that is noted; False where none was new."""
        with self._lock:
            if incarnation not in self._lives:
                return False
            known = self._processes.setdefault(incarnation, set())
            new = set(seen) - known
            known |= new
            self._stale_processes |= {(incarnation, process) for process in new}
        return bool(new)

    def drop_processes(self, incarnation: str, gone: Collection[ProcessId]) -> bool:
        """Take processes of a life away; False where none was known."""
        with self._lock:
            known = self._processes.get(incarnation, set())
            dropped = known & set(gone)
            known -= dropped
            self._stale_processes |= {(incarnation, process) for process in dropped}
        return bool(dropped)

    def learned(self, subject: str) -> str | None:
        """What is usual for a subject, which counts as used now; None: nothing is known."""
        with self._lock:
            return self._learned.use(subject)

    def put_learned(self, subject: str, worker: str, body: str) -> None:
        """Note what is usual; beyond `MOST_LEARNED` what was not used for longest goes."""
        with self._lock:
            self._learned.put(subject, worker, body)

    def drop_learned(self, subject: str) -> None:
        """Forget what was usual."""
        with self._lock:
            self._learned.drop(subject)

    def take(self) -> Changes:
        """What the database lacks; from now on it counts as there."""
        with self._lock:
            changes = Changes(
                lives={name: self._lives.get(name) for name in self._stale_lives},
                workers={name: self._workers.get(name) for name in self._stale_workers},
                processes={
                    (name, process): process in self._processes.get(name, ())
                    for name, process in self._stale_processes
                },
                learned=self._learned.take(),
                rewrite=self._rewrite,
            )
            self._stale_lives.clear()
            self._stale_workers.clear()
            self._stale_processes.clear()
            self._rewrite = False
        return changes

    def give_back(self, changes: Changes) -> None:
        """That commit failed: the next one has to bring it."""
        with self._lock:
            self._stale_lives |= set(changes.lives)
            self._stale_workers |= set(changes.workers)
            self._stale_processes |= set(changes.processes)
            self._learned.stale |= set(changes.learned)
            self._rewrite |= changes.rewrite

    def adopt(self, loaded: Loaded, boot: str) -> None:
        """Take what a database holds, where nothing newer is known here or was forgotten here.

        `boot` is the present one.
        """
        with self._lock:
            for name, life in loaded.lives.items():
                known = self._lives.get(name)
                forgotten = known is None and name in self._stale_lives
                if not forgotten and (known is None or known.noted_at < life.noted_at):
                    self._lives[name] = life
            for name, worker in loaded.workers.items():
                mine = self._workers.get(name)
                dropped = mine is None and name in self._stale_workers
                if not dropped and (mine is None or later(worker, mine, boot)):
                    self._workers[name] = worker
            for name, processes in loaded.processes.items():
                if name in self._lives:
                    self._processes.setdefault(name, set()).update(processes)
            self._learned.adopt(loaded.learned)

    def all_stale(self) -> None:
        """The database is another one than before: the next commit brings everything."""
        with self._lock:
            self._rewrite = True
            self._stale_lives |= set(self._lives)
            self._stale_workers |= set(self._workers)
            self._stale_processes |= {
                (name, process) for name, found in self._processes.items() for process in found
            }
            self._learned.all_stale()
