"""Finds workers of this supervisor by the marks in their environment, when nothing is on record.

The state may be lost while workers live on (a damaged disk, a wiped directory). A worker's
environment names its worker, its life, its pages, its token, and where it beats to; the last tells
whose it is, and of a spawned one which process is the main one. It may have ended meanwhile, and
then that life is over, whatever is left of its tree. Where the mark is missing the main process is
the one whose parent is none of them.

Anybody can write such an environment, and a container may hold a supervisor of its own at the same
path. So a mark counts only where the process runs as the user that the worker has, and finds at
that path the very directory that our socket is in.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection
from pathlib import Path

from stepwarden_proto import page

from stepwarden.core.evidence import ProcessId
from stepwarden.edge.host import this_host
from stepwarden.edge.process_table import Proc, ProcessTable
from stepwarden.edge.state_records import LifeRecord

_MOST_BYTES = 1 << 20
_LIFE = re.compile(r"(?P<worker>[^/]+)\.[0-9]+\.[0-9a-f]{8}")
_UNIX = "unix:"
_ENDED = 0
"""In place of the start time of a main process that has ended."""

Trusted = Callable[[str, int], bool]
"""Whether a process of this user may be one of that worker."""


def find_strays(
    targets: Collection[str], table: ProcessTable, trusted: Trusted, page_home: Path
) -> list[LifeRecord]:
    """One record for each life whose processes beat to one of `targets`, unix sockets of ours.

    Its pages are where they lie, or would lie in `page_home` where what it says cannot be so.
    Reads /proc of every process: for the start of the daemon only, and in a thread.
    """
    marked: dict[str, list[tuple[Proc, dict[str, str]]]] = {}
    for entry in table.by_pid.values():
        if entry.gone or entry.pid == os.getpid():
            continue
        marks = marks_of(entry.process)
        if marks.get(page.ENV_TARGET) in targets and _is_ours(entry.pid, marks, trusted):
            marked.setdefault(marks[page.ENV_INCARNATION], []).append((entry, marks))
    return [_record(found, page_home, table) for found in marked.values()]


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


def _is_ours(pid: int, marks: dict[str, str], trusted: Trusted) -> bool:
    life = _LIFE.fullmatch(marks.get(page.ENV_INCARNATION, ""))
    if life is None or life["worker"] != marks.get(page.ENV_WORKER):
        return False
    try:
        uid = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return False
    target = marks[page.ENV_TARGET]
    return trusted(life["worker"], uid) and target.startswith(_UNIX) and _same_place(pid, target)


def _same_place(pid: int, target: str) -> bool:
    """Whether the socket's directory is the same for that process as for us."""
    directory = os.path.dirname(target.removeprefix(_UNIX))
    try:
        return os.path.samefile(f"/proc/{pid}/root{directory}", directory)
    except OSError:
        return False


def _record(
    found: list[tuple[Proc, dict[str, str]]], page_home: Path, table: ProcessTable
) -> LifeRecord:
    pids = {entry.pid for entry, _ in found}
    roots = [item for item in found if item[0].ppid not in pids] or found
    entry, marks = min(roots, key=lambda item: (item[0].start_ticks, item[0].pid))
    main = _named_main(marks, entry, table) or entry.process
    return LifeRecord(
        marks[page.ENV_WORKER],
        marks[page.ENV_INCARNATION],
        this_host().boot,
        "spawn",
        _page_dir(entry.pid, marks) or str(page_home / marks[page.ENV_INCARNATION]),
        marks.get(page.ENV_TOKEN, ""),
        0.0,
        main.pid,
        main.start_ticks,
    )


def _named_main(marks: dict[str, str], member: Proc, table: ProcessTable) -> ProcessId | None:
    """The main process by the mark that all of its tree inherits; None where there is no mark.

    One that has ended is named too, by a start time that no process has. A process that began
    after `member`, which descends from the main one, has only its number.
    """
    told = marks.get(page.ENV_MAIN, "")
    if not (told.isascii() and told.isdigit()):
        return None
    entry = table.by_pid.get(int(told))
    if entry is None or entry.gone or entry.start_ticks > member.start_ticks:
        return ProcessId(int(told), _ENDED)
    return entry.process


def _page_dir(pid: int, marks: dict[str, str]) -> str:
    """Where its pages lie; "" where that cannot be: it is taken away when the life is over."""
    path = marks.get(page.ENV_PAGE_DIR, "")
    if not os.path.isabs(path) or os.path.basename(path) != marks[page.ENV_INCARNATION]:
        return ""
    try:
        same_user = os.lstat(path).st_uid == os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return ""
    return path if same_user else ""
