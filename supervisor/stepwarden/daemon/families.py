"""Makes the families of lives: of those that run, and of those that are only on record."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from stepwarden.core.evidence import ProcessId
from stepwarden.daemon.life import Life
from stepwarden.daemon.runners import ATTACH
from stepwarden.daemon.unit import Unit
from stepwarden.edge.cgroup import Cgroup, at_control_group
from stepwarden.edge.family import Family
from stepwarden.edge.process_probe import alive
from stepwarden.edge.state_records import LifeRecord
from stepwarden.edge.state_store import StateStore
from stepwarden.edge.traces import TraceReader

NOBODY = ProcessId(0, 0)
"""Stands for a main process that is not known."""


class Families:
    """Every family of this daemon, made in one way: by control group, ancestry, marker and pages.

    `on_record`: whom the store remembers as members of a life; it is told of each new one.
    """

    def __init__(self, units: Mapping[str, Unit], store: StateStore) -> None:
        self._units = units
        self._store = store
        self._logs: set[ProcessId] = set()
        self.traces = TraceReader()

    def of_life(self, life: Life) -> Family:
        """The processes of a life that runs now."""
        main, pages = life.main or NOBODY, _own_pages(life.runner, life.page_dir)
        return self._make(main, life.name, pages, life.cgroup)

    def of_record(self, record: LifeRecord) -> Family:
        """The processes of a life that an earlier daemon left behind."""
        main = ProcessId(record.pid, record.start_ticks)
        if not record.pid:
            main = ProcessId(record.launcher_pid, record.launcher_ticks)
        pages = _own_pages(record.runner, Path(record.page_dir))
        return self._make(main, record.incarnation, pages, record.cgroup)

    def note_log(self, process: ProcessId) -> None:
        """A process of ours that writes a worker's output: it is no member of any family."""
        self._logs.add(process)

    def _make(self, main: ProcessId, name: str, page_dir: Path | None, cgroup: str) -> Family:
        def note(new: frozenset[ProcessId]) -> None:
            self._store.note_processes(name, new)

        def drop(gone: frozenset[ProcessId]) -> None:
            self._store.drop_processes(name, gone)

        return Family(
            main,
            name,
            page_dir,
            self._barred,
            self.traces,
            cgroup=group_of(cgroup),
            seen=self._store.processes(name),
            on_seen=note,
            on_gone=drop,
        )

    def _barred(self) -> set[int]:
        self._logs = {process for process in self._logs if alive(process)}
        lives = (unit.life for unit in self._units.values())
        mains = {life.main.pid for life in lives if life is not None and life.main is not None}
        return mains | {process.pid for process in self._logs}


def _own_pages(runner: str, page_dir: Path) -> Path | None:
    """The directory whose users are members; attached lives of one worker share theirs."""
    return None if runner == ATTACH else page_dir


def group_of(cgroup: str) -> Cgroup | None:
    """A control group by its folder, or by the name that systemd has for it; None for none."""
    if not cgroup:
        return None
    if os.path.exists(os.path.join(cgroup, "cgroup.procs")):
        return Cgroup(Path(cgroup))
    return at_control_group(cgroup)
