"""What becomes of the workers when the daemon is told to end (`on_exit`).

    stop    all are stopped with their grace
    leave   those that a service manager leaves alone live on, and so do spawned ones where there
            is none; the next daemon adopts them
    auto    under systemd, when the service is being restarted: leave. Otherwise: stop

SIGINT always stops all. Spawned workers are in the service's own control group, which systemd ends
with the service; they are stopped with their grace before it does. A worker that something else
started is never ended because we end.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from stepwarden.daemon.life import Life
from stepwarden.daemon.runners import ATTACH, SURVIVORS

STOP, LEAVE, AUTO = "stop", "leave", "auto"


@dataclass(frozen=True, slots=True)
class Farewell:
    """How this end of the daemon is to be. `why` for the log."""

    leave: bool
    in_service: bool
    why: str

    def leaves(self, life: Life) -> bool:
        """Whether this life goes on without us."""
        if life.runner == ATTACH:
            return True
        return self.leave and (life.runner in SURVIVORS or not self.in_service)


def farewell(on_exit: str, number: int, job: str | None, in_service: bool) -> Farewell:
    """Decide. `number`: the signal; `job`: what systemd does with our unit now, None for nothing.

    `in_service`: we run in a unit of systemd.
    """
    if number == signal.SIGINT:
        return Farewell(False, in_service, "interrupted")
    if on_exit == LEAVE:
        return Farewell(True, in_service, "on_exit: leave")
    if on_exit == AUTO and in_service and job == "restart":
        return Farewell(True, in_service, "the service is being restarted")
    return Farewell(False, in_service, "on_exit: stop" if on_exit == STOP else "asked to end")
