"""What is remembered of the time that one life could not use."""

from __future__ import annotations

from dataclasses import dataclass

from stepwarden.core.facts import NO_PRESSURE, Pressure
from stepwarden.core.starved import NOT_STARVED, Starved
from stepwarden.edge.pressure import PressurePlaces


@dataclass(slots=True)
class StarvedMemory:
    """What is remembered of one life. `at`: when its pressure was last read.

    `places`: where it is read, for a main process that is in `groups`.
    """

    starved: Starved = NOT_STARVED
    at: float | None = None
    worker: Pressure = NO_PRESSURE
    host: Pressure = NO_PRESSURE
    places: PressurePlaces | None = None
    groups: tuple[str, ...] = ()
