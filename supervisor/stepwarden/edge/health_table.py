"""What grpc.health.v1 answers, from the last snapshot that the verdict loop published.

The loop publishes a new, immutable snapshot at least each second. Any thread may ask. Once the
stamp is older than `STALE_AFTER_SECONDS` nobody knows how the workers are, and every name is
NOT_SERVING. After `drain()` every name is NOT_SERVING for good.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from stepwarden.clock import Clock
from stepwarden.core.deadline import elapsed
from stepwarden.edge.health_messages import NOT_SERVING, SERVING

STALE_AFTER_SECONDS = 3.0
OVERALL = ""
"""The supervisor itself: the verdict loop turns."""
READY = "ready"
"""All required workers are HEALTHY."""


def worker_name(name: str) -> str:
    """The health service name of a worker."""
    return f"worker/{name}"


@dataclass(frozen=True, slots=True)
class HealthSnapshot:
    """What the loop knew at `stamp` (monotonic seconds): serving or not, by service name.

    The name "" is not in it: the freshness of the stamp decides that one.
    """

    stamp: float
    serving: Mapping[str, bool] = field(default_factory=dict)


class HealthTable:
    """The newest snapshot and the clock that ages it. Safe for any number of threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._snapshot = HealthSnapshot(-math.inf, {READY: False})
        self._draining = False

    def publish(self, snapshot: HealthSnapshot) -> bool:
        """Replace the snapshot; True where more than the stamp is new.

        One reference store: a reader sees the old one or the new one.
        """
        before = self._snapshot.serving
        self._snapshot = snapshot
        return snapshot.serving is not before and snapshot.serving != before

    def drain(self) -> None:
        """From now on everything is NOT_SERVING, whatever is still published."""
        self._draining = True

    def status(self, name: str) -> int | None:
        """SERVING or NOT_SERVING; None for a name that is not known."""
        snapshot = self._snapshot
        serving = name == OVERALL or snapshot.serving.get(name)
        if serving is None:
            return None
        return SERVING if serving and self._fresh(snapshot) else NOT_SERVING

    def statuses(self) -> dict[str, int]:
        """Every known name with its status, all from one snapshot."""
        snapshot = self._snapshot
        fresh = self._fresh(snapshot)
        known = {OVERALL: True, **snapshot.serving}
        return {name: SERVING if fresh and on else NOT_SERVING for name, on in known.items()}

    def _fresh(self, snapshot: HealthSnapshot) -> bool:
        age = elapsed(snapshot.stamp, self._clock.monotonic())
        return not self._draining and age <= STALE_AFTER_SECONDS
