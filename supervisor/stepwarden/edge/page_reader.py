"""Reads the progress pages of one incarnation: what each rank does, even while it cannot speak.

Two reads must agree on a word or a slot, because the writer's stores have no order on every
machine and it never waits for us. Files that are not good pages are left alone.
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stepwarden_proto.page import SLOT_WORDS
from stepwarden_proto.ring import SLOT_STARTS

from stepwarden.core.evidence import EndedStep, Lease, ProcessId, Step, Work
from stepwarden.edge.host import Host, this_host
from stepwarden.edge.page_file import OpenPage, full, open_page, parse_name, words_of
from stepwarden.edge.page_view import PageView, Stamps, build_view
from stepwarden.edge.process_probe import alive

__all__ = ["EndedStep", "Lease", "PageReader", "PageView", "Step", "Work"]

MAX_REREADS = 3
MAX_PAGES = 256  # of one incarnation; more files than this are not looked at
UNFINISHED_READS = 20
"""How many reads long a file that is no good page (yet) is looked at again."""


@dataclass(slots=True)
class _Known:
    page: OpenPage
    stamps: Stamps


class PageReader:
    """Reads the pages in one incarnation's directory and keeps them open.

    `expect_uid`: pages of any other user are ignored; None: any user's are taken. `not_before`:
    when the incarnation began; nothing on its pages can be older.
    """

    def __init__(
        self, directory: Path, expect_uid: int | None = None, not_before: float = -math.inf
    ) -> None:
        self._path = os.fspath(directory)
        self._expect_uid = expect_uid
        self._not_before = not_before
        self._host: Host = this_host()
        self._directory = -1
        self._listed: int | None = None  # st_mtime_ns of the directory when it was last listed
        self._list_again = False
        self._known: dict[str, _Known] = {}
        self._unfinished: dict[str, int] = {}
        self.strangers: dict[str, int] = {}
        """Ranks with a page of another user, and who that is."""
        self._held: list[PageView] = []

    @property
    def writers(self) -> frozenset[ProcessId]:
        """Who held the lock of a page at the last read, by pid and start time as the page says."""
        return frozenset(ProcessId(view.pid, view.start_ticks) for view in self._held)

    def expect(self, uid: int | None) -> None:
        """From now on only pages of this user are taken; None: any user's."""
        self._expect_uid = uid

    def read(self, now: float) -> dict[str, PageView]:
        """The view of each rank; `now` is the supervisor's monotonic time. Never raises.

        Where a rank has several pages (a forked child took over), one whose writer lives wins,
        then the one of the youngest process.
        """
        try:
            self._look_for_pages()
        except (OSError, ValueError):
            self._listed = None
        best: dict[str, PageView] = {}
        others: list[PageView] = []
        held = []
        for name, known in list(self._known.items()):
            view = self._view(known, now)
            if view is None:
                self._forget(name)
                continue
            if view.holder is not None:
                held.append(view)
            rival = best.get(view.rank)
            if rival is None or _precedence(view) > _precedence(rival):
                best[view.rank], view = view, rival
            if view is not None:
                others.append(view)
        self._held = held
        for view in others:
            if view.holder is None and best[view.rank].holder is not None:
                self._clear_away(view)
        return best

    def _clear_away(self, view: PageView) -> None:
        """Another process has the rank, and the writer of this page is gone.

        An engine that forks a child for some work and then the next leaves a page each time.
        """
        writer = ProcessId(view.pid, view.start_ticks)
        if alive(writer):
            return
        self._forget(view.name)
        with suppress(OSError):
            os.unlink(view.name, dir_fd=self._directory)

    def close(self) -> None:
        """Close every file. The reader can be used again; it then starts anew."""
        for name in list(self._known):
            self._forget(name)
        self._unfinished.clear()
        self._listed = None
        self._close_directory()

    def _view(self, known: _Known, now: float) -> PageView | None:
        try:
            words, in_motion = settled(known.page)
            return build_view(known.page, words, in_motion, known.stamps, self._host, now)
        except (OSError, ValueError, OverflowError):
            return None

    def _look_for_pages(self) -> None:
        changed = os.stat(self._path).st_mtime_ns
        if changed != self._listed or self._list_again:
            # Two changes within one tick of the file system's clock leave one time stamp.
            self._list_again = changed != self._listed
            self._listed = changed
            self._list()
        for name, tries in list(self._unfinished.items()):
            self._try(name, tries)

    def _list(self) -> None:
        self._close_directory()
        self._directory = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        inodes: dict[str, int] = {}
        with os.scandir(self._directory) as entries:
            for entry in entries:
                if len(inodes) < MAX_PAGES and parse_name(entry.name) is not None:
                    inodes[entry.name] = entry.inode()
        for name, known in list(self._known.items()):
            if inodes.get(name) != known.page.inode:
                self._forget(name)
        fresh = [name for name in inodes if name not in self._known]
        self._unfinished = dict.fromkeys(fresh, UNFINISHED_READS)
        self.strangers = self._owned_by_others(fresh)

    def _owned_by_others(self, names: list[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        for name in names if self._expect_uid is not None else ():
            with suppress(OSError):
                owner = os.stat(name, dir_fd=self._directory, follow_symlinks=False).st_uid
                parsed = parse_name(name)
                if parsed is not None and owner != self._expect_uid:
                    found[parsed[0]] = owner
        return found

    def _try(self, name: str, tries: int) -> None:
        try:
            page = open_page(self._directory, name, self._expect_uid)
        except OSError:  # no descriptor is left for anybody: nothing is said about this file
            return
        if page is not None:
            self._known[name] = _Known(page, Stamps(not_before=self._not_before))
        if page is not None or tries <= 1:
            del self._unfinished[name]
        else:
            self._unfinished[name] = tries - 1

    def _forget(self, name: str) -> None:
        known = self._known.pop(name, None)
        if known is not None:
            known.page.close()

    def _close_directory(self) -> None:
        if self._directory >= 0:
            os.close(self._directory)
            self._directory = -1


def settled(page: OpenPage) -> tuple[tuple[int, ...], bool]:
    """The words on which two reads agree, and whether some slot changed between all of them.

    A slot that will not settle (its writer is quicker than we) comes out as zeros: no step. A
    step that hangs never moves, so it is never lost. Raises ValueError for a file cut short.
    """
    before = _read(page)
    after = _read(page)
    if before == after:
        return words_of(after), False
    words = list(words_of(after))
    missing = _differing(words_of(before), words)
    for _ in range(MAX_REREADS):
        if not missing:
            break
        older, newer = words_of(after), words_of(after := _read(page))
        for start in [start for start in missing if _same(older, newer, start)]:
            words[start : start + SLOT_WORDS] = newer[start : start + SLOT_WORDS]
            missing.discard(start)
    for start in missing:
        words[start : start + SLOT_WORDS] = [0] * SLOT_WORDS
    return tuple(words), bool(missing)


def _differing(before: tuple[int, ...], after: list[int]) -> set[int]:
    # Header words stand alone and a single one is never torn: the later read holds for them.
    return {start for start in SLOT_STARTS if not _same(before, tuple(after), start)}


def _same(before: tuple[int, ...], after: tuple[int, ...], start: int) -> bool:
    return before[start : start + SLOT_WORDS] == after[start : start + SLOT_WORDS]


def _read(page: OpenPage) -> bytes:
    raw = page.read()
    if not full(raw):
        raise ValueError(f"{page.name} was cut short")
    return raw


def _precedence(view: PageView) -> tuple[bool, int, int]:
    return view.holder is not None, view.start_ticks, view.pid
