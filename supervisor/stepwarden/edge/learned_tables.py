"""What is usual, by subject, as the state in memory holds it; what was not used long goes first."""

from __future__ import annotations

from collections.abc import Mapping

from stepwarden.edge.state_records import LearnedRecord

MOST_LEARNED = 2048
"""Tables that are kept, of some hundred bytes each."""


class LearnedTables:
    """`stale`: subjects of which the database has not the newest. The caller holds a lock."""

    def __init__(self) -> None:
        self._records: dict[str, LearnedRecord] = {}
        self._used = 0
        self.stale: set[str] = set()

    def use(self, subject: str) -> str | None:
        """What is known, which counts as used now."""
        record = self._records.get(subject)
        if record is None:
            return None
        self.put(subject, record.worker, record.body)
        return record.body

    def put(self, subject: str, worker: str, body: str) -> None:
        """Note this; the newest holds."""
        self._used += 1
        self._records[subject] = LearnedRecord(worker, self._used, body)
        self.stale.add(subject)
        while len(self._records) > MOST_LEARNED:
            self.drop(min(self._records, key=lambda one: self._records[one].used))

    def drop(self, subject: str) -> None:
        """Forget it."""
        self._records.pop(subject, None)
        self.stale.add(subject)

    def take(self) -> dict[str, LearnedRecord | None]:
        """What the database lacks; from now on it counts as there."""
        changes = {subject: self._records.get(subject) for subject in self.stale}
        self.stale = set()
        return changes

    def adopt(self, loaded: Mapping[str, LearnedRecord]) -> None:
        """Take what a database holds, but for what is newer or was forgotten here."""
        self._used += max((record.used for record in loaded.values()), default=0)
        mine = {subject: self._records.get(subject) for subject in self.stale}
        self._records = dict(loaded)
        for subject, record in mine.items():
            self._records.pop(subject, None)
            if record is not None:
                self.put(subject, record.worker, record.body)

    def all_stale(self) -> None:
        """The database is another one than before."""
        self.stale |= set(self._records)
