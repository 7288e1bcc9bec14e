"""How often a worker may die before the operator is called, and how long to wait before each try.

`limit` deaths `within` a time, or `limit` deaths in a row without `stable` uptime between them,
and the worker is FAILED. The second rule is there because a slow start that always hangs never
fits `limit` deaths into any reasonable time. Stable uptime, and nothing else, resets both.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepwarden.core.deadline import elapsed
from stepwarden.core.policy import RestartPolicy


@dataclass(frozen=True, slots=True)
class Ledger:
    """Deaths since the last stable life: instants (monotonic seconds), and how many in a row."""

    deaths: tuple[float, ...] = ()
    streak: int = 0

    def used(self, policy: RestartPolicy, now: float) -> int:
        """Deaths that count against the limit now, by whichever rule counts more."""
        recent = sum(1 for at in self.deaths if elapsed(at, now) <= policy.within)
        return max(recent, self.streak)


def record_death(ledger: Ledger, policy: RestartPolicy, uptime: float, now: float) -> Ledger:
    """Count one more death; `uptime` is how long the worker had been ready (0.0: never)."""
    if uptime >= policy.stable:
        return Ledger((now,), 1)
    recent = tuple(at for at in ledger.deaths if elapsed(at, now) <= policy.within)
    return Ledger((*recent, now)[-policy.limit :], ledger.streak + 1)


def spent(ledger: Ledger, policy: RestartPolicy, now: float) -> bool:
    """True when no further restart is allowed."""
    return ledger.used(policy, now) >= policy.limit


def delay(ledger: Ledger, policy: RestartPolicy, spread: float) -> float:
    """Seconds to wait before the next life.

    `spread` lies in -1..1, drawn by the caller; the delay moves by up to `jitter` of itself, so
    that workers which died together do not come back together.
    """
    plain = min(policy.delay, policy.max_delay)
    for _ in range(min(max(0, ledger.streak - 1), 64)):  # a power of a large factor overflows
        plain = min(plain * policy.factor, policy.max_delay)
    return max(0.0, plain * (1.0 + policy.jitter * max(-1.0, min(1.0, spread))))


def wants_restart(policy: RestartPolicy, clean_exit: bool) -> bool:
    """Whether a death is followed by a restart; `clean_exit`: its main ended with code 0."""
    if policy.on == "never":
        return False
    return not (policy.on == "failure" and clean_exit)
