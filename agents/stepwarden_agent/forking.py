"""What happens to agents when the engine forks.

The child holds the parent's page and connection; it may touch neither. Each agent is told and
arms itself anew, with a page and threads of its own, when the child declares a step or a phase.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol

_WAIT_SECONDS = 5.0

# Held while a thread of ours does what no fork may cut in half: it imports protobuf (the child
# would have an import lock that nobody ever releases, and the engine's own import would hang in
# it), or it makes or closes a socket.
lock = threading.Lock()


class Forkable(Protocol):
    """Somebody who must know that he is now in a forked child."""

    def forked(self) -> None:
        """Called in the child, in the thread that forked; must not block."""


_known: weakref.WeakSet[Forkable] = weakref.WeakSet()
_held = False
_registered = False


def tell(agent: Forkable) -> None:
    """Tell `agent` of forks from now on."""
    global _registered  # noqa: PLW0603 - handlers can be registered once and never taken back
    _known.add(agent)
    if not _registered:
        _registered = True
        os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)


def _before() -> None:
    global _held  # noqa: PLW0603 - the handlers have no other way to speak to each other
    _held = lock.acquire(timeout=_WAIT_SECONDS)


def _in_parent() -> None:
    if _held:
        lock.release()


def _in_child() -> None:
    global lock  # noqa: PLW0603 - the old one may be held by a thread that is not here
    lock = threading.Lock()
    for agent in list(_known):
        agent.forked()
