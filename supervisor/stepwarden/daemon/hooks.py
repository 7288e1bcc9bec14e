"""What nearly every part of the daemon needs of the rest, handed around as one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stepwarden.clock import Clock
from stepwarden.core.event import Event
from stepwarden.daemon.tasks import Tasks
from stepwarden.daemon.unit import Unit


@dataclass(frozen=True, slots=True)
class Hooks:
    """`note` writes an event down; `poke` makes the loop look at a worker; `tasks` runs work."""

    clock: Clock
    note: Callable[[Event], None]
    poke: Callable[[Unit], None]
    tasks: Tasks
