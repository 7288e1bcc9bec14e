"""How late this machine itself is, so that no test blames the program for it."""

from __future__ import annotations

import threading
import time
from typing import Self


class HostLateness:
    """How late this machine wakes a thread that sleeps: noise that no story is to blame for.

    `worst` in seconds, since `start`. Also a context manager.
    """

    def __init__(self) -> None:
        self.worst = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin to measure."""
        self._thread.start()

    def stop(self) -> None:
        """End it; `worst` stays."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        while not self._ended.is_set():
            before = time.monotonic()
            self._ended.wait(0.05)
            self.worst = max(self.worst, time.monotonic() - before - 0.05)
