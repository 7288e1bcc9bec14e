"""How `top` ends: on a signal, on a terminal that is gone, always with the terminal as it was.

The library restores the terminal when it ends by itself. But its writer can be stuck in a terminal
that takes nothing (a stalled connection), and then only the process can end. A signal therefore
asks for the ordinary end first and forces it a moment later.
"""

from __future__ import annotations

import os
import signal
import termios
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

FORCE_SECONDS = 2.0
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_INPUT = 0
_WRITER = "textual-output"
"""The library's thread that writes to the terminal."""


class Ending:
    """Ends the view by `leave`, which gets the exit code; for before the terminal is changed.

    `code`: the exit code where a signal ended it, or a terminal that is gone; None: neither.
    """

    def __init__(self) -> None:
        self.code: int | None = None
        self._leave: Callable[[int], None] | None = None
        self._before = self._terminal()

    def arm(self, leave: Callable[[int], None]) -> None:
        """Take the signals; for the main thread."""
        self._leave = leave
        for number in _SIGNALS:
            # Ignored ones stay ignored: so nohup asks for it.
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._signalled)
        threading.excepthook = self._failed

    def disarm(self) -> None:
        """Nothing of ours is in force any more."""
        self._leave = None
        threading.excepthook = threading.__excepthook__

    def force_later(self) -> None:
        """Whatever is stuck now ends with the process in a moment."""
        guard = threading.Timer(FORCE_SECONDS, self._force)
        guard.daemon = True
        guard.start()

    def _signalled(self, number: int, _frame: FrameType | None) -> None:
        self.code = 128 + number
        self.force_later()
        if self._leave is not None:
            self._leave(self.code)

    def _failed(self, failure: Any) -> None:
        thread = failure.thread.name if failure.thread is not None else ""
        if thread == _WRITER:
            # The terminal is gone: nothing can be drawn or restored.
            self.code = 128 + signal.SIGHUP
            self._force()
        threading.__excepthook__(failure)

    def _force(self) -> None:
        if self._leave is None:
            return
        if self._before is not None:
            with suppress(termios.error, OSError):
                termios.tcsetattr(_INPUT, termios.TCSANOW, self._before)
        os._exit(self.code if self.code is not None else 1)

    @staticmethod
    def _terminal() -> Any:
        with suppress(termios.error, OSError):
            return termios.tcgetattr(_INPUT)
        return None
