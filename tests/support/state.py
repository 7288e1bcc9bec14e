"""State stores for tests: made, filled, read, in directories of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stepwarden.edge.host import this_host
from stepwarden.edge.state_records import LifeRecord, Noted, WorkerRecord
from stepwarden.edge.state_store import StateStore

BOOT = this_host().boot


def life(name: str = "w.1.abcd", worker: str = "w", pid: int = 0, boot: str = BOOT) -> LifeRecord:
    """A life record of a spawned worker."""
    return LifeRecord(
        worker=worker,
        incarnation=name,
        boot_id=boot,
        runner="spawn",
        page_dir=f"/dev/shm/pages/{name}",
        token=f"secret-of-{name}",
        spawned_at=12.5,
        pid=pid,
        start_ticks=77 if pid else 0,
    )


def wish(worker: str = "w", body: str = '{"stopped": true}', boot: str = BOOT) -> WorkerRecord:
    """A worker record; by default a stop."""
    return WorkerRecord(worker, boot, body)


@contextmanager
def open_store(directory: Path) -> Iterator[StateStore]:
    """A store in `directory`/state and `directory`/run, closed at the end."""
    store = make_store(directory)
    try:
        yield store
    finally:
        store.close()


def make_store(directory: Path) -> StateStore:
    """The same, for a test that closes it itself, or does not."""
    for name in ("state", "run"):
        (directory / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    return StateStore(directory / "state", directory / "run")


def note(store: StateStore, record: LifeRecord, limit: float = 10.0) -> Noted:
    """Note a life and wait."""
    return asyncio.run(store.note_life(record, limit))


def forget(store: StateStore, name: str, limit: float = 10.0) -> Noted:
    """Forget a life and wait."""
    return asyncio.run(store.forget_life(name, limit))


def durable(store: StateStore, limit: float = 10.0) -> Noted:
    """Wait until all that was noted is kept."""
    return asyncio.run(store.durable(limit))
