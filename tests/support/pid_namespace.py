"""A daemon in a container's place: the first process of a pid namespace of its own."""

from __future__ import annotations

import signal

import psutil

from support.daemon import Daemon

CONTAINER = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


class Contained(Daemon):
    """It cannot see the processes of others; `unshare` waits for it outside."""

    def command(self) -> list[str]:
        """As a container starts it: nobody is there before it."""
        return [*CONTAINER, *super().command()]

    @property
    def pid(self) -> int:
        """The daemon's pid as it is seen from here."""
        assert self.process is not None
        below = psutil.Process(self.process.pid).children()
        return below[0].pid if below else self.process.pid

    def terminate(self) -> None:
        """As a container's runtime does."""
        psutil.Process(self.pid).send_signal(signal.SIGTERM)
