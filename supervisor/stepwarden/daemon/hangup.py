"""What SIGHUP means: reload, unless the terminal that the daemon was started from is gone.

A service has no terminal, and its SIGHUP is a wish to reload. Under a terminal the same signal is
sent when that is closed; a supervisor that lived on then would be one that nobody knows of. So
where there was one it is looked for again, with the signal and once more a moment later (a shell
that ends may send the signal first). Under nohup the signal stays ignored.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

TERMINAL = "/dev/tty"
LOOK_AGAIN_SECONDS = 1.0


def terminal_there(path: str = TERMINAL) -> bool:
    """Whether this process has a controlling terminal that is not hung up. Does not wait."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return False
    os.close(descriptor)
    return True


class Hangup:
    """Takes SIGHUP on the running loop. `reload` and `end` are called for what it means."""

    def __init__(
        self,
        reload: Callable[[], None],
        end: Callable[[int], None],
        there: Callable[[], bool] = terminal_there,
    ) -> None:
        self._reload = reload
        self._end = end
        self._there = there
        self._had_terminal = there()

    def listen(self) -> None:
        """From now on; a signal that is ignored (nohup) stays so."""
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self.arrived)

    def arrived(self) -> None:
        """SIGHUP has come."""
        if self._is_gone():
            return
        self._reload()
        if self._had_terminal:
            asyncio.get_running_loop().call_later(LOOK_AGAIN_SECONDS, self._is_gone)

    def _is_gone(self) -> bool:
        gone = self._had_terminal and not self._there()
        if gone:
            self._end(signal.SIGHUP)
        return gone
