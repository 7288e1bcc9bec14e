"""Modes of paths, at every instant and under any umask."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """This process has that umask within the block."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode_of(path: Path) -> int:
    """The mode of the path itself; of the link, where it is one."""
    return stat.S_IMODE(path.lstat().st_mode)


class ModeWatch:
    """Notes every mode and group under which these paths can be seen, in a tight loop.

    `seen`: pairs of both by the name of the path.
    """

    def __init__(self, *paths: Path) -> None:
        self.seen: dict[str, set[tuple[int, int]]] = {path.name: set() for path in paths}
        self._paths = paths
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def modes(self, path: Path) -> set[int]:
        """Every mode that was seen of one of them."""
        return {mode for mode, _ in self.seen[path.name]}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            for path in self._paths:
                try:
                    facts = path.lstat()
                except FileNotFoundError:
                    continue
                self.seen[path.name].add((stat.S_IMODE(facts.st_mode), facts.st_gid))
