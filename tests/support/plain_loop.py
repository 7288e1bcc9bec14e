"""A loop that takes outcomes over and judges nothing: for tests of what acts."""

from __future__ import annotations

from stepwarden.core.worker import Outcome
from stepwarden.daemon.act import Actor
from stepwarden.daemon.unit import Unit


class PlainLoop:
    """Takes outcomes over, as the verdict loop does."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    def poke(self, unit: Unit | None = None) -> None:
        """Nobody sleeps here."""

    def apply(self, unit: Unit, outcome: Outcome, now: float) -> None:
        unit.state = outcome.state
        for action in outcome.actions:
            self._actor.take(unit, action, now)
