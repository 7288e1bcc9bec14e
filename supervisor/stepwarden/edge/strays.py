"""Finds workers of this supervisor by the marks in their environment, when nothing is on record.

The state may be lost while workers live on (a damaged disk, a wiped directory). A worker's
environment names its worker, its life, its pages, its token, and where it beats to; the last tells
whose it is. Of the processes of one life the main one is the one whose parent is none of them.
"""

from __future__ import annotations

import os
from collections.abc import Collection

from stepwarden_proto import page

from stepwarden.core.evidence import ProcessId
from stepwarden.edge.host import this_host
from stepwarden.edge.process_table import Proc, ProcessTable
from stepwarden.edge.state_records import LifeRecord

_MOST_BYTES = 1 << 20


def find_strays(targets: Collection[str], table: ProcessTable) -> list[LifeRecord]:
    """One record for each life whose processes beat to one of `targets`.

    Reads /proc of every process: for the start of the daemon only, and in a thread.
    """
    marked: dict[str, list[tuple[Proc, dict[str, str]]]] = {}
    for entry in table.by_pid.values():
        if entry.gone or entry.pid == os.getpid():
            continue
        marks = marks_of(entry.process)
        if marks.get(page.ENV_TARGET) in targets and marks.get(page.ENV_INCARNATION):
            marked.setdefault(marks[page.ENV_INCARNATION], []).append((entry, marks))
    return [_record(found) for found in marked.values()]


def marks_of(process: ProcessId) -> dict[str, str]:
    """What of ours stands in the environment that a process was started with; {} for nothing."""
    try:
        with open(f"/proc/{process.pid}/environ", "rb") as file:
            content = file.read(_MOST_BYTES)
    except OSError:
        return {}
    marks = {}
    for line in content.split(b"\0"):
        name, equals, value = line.decode("utf-8", "replace").partition("=")
        if equals and name.startswith("STEPWARDEN_"):
            marks[name] = value
    return marks


def _record(found: list[tuple[Proc, dict[str, str]]]) -> LifeRecord:
    pids = {entry.pid for entry, _ in found}
    roots = [item for item in found if item[0].ppid not in pids] or found
    entry, marks = min(roots, key=lambda item: (item[0].start_ticks, item[0].pid))
    return LifeRecord(
        marks.get(page.ENV_WORKER, ""),
        marks[page.ENV_INCARNATION],
        this_host().boot,
        "spawn",
        marks.get(page.ENV_PAGE_DIR, ""),
        marks.get(page.ENV_TOKEN, ""),
        0.0,
        entry.pid,
        entry.start_ticks,
    )
