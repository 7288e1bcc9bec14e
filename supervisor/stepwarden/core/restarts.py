"""How often a worker may die before the operator is called, and how long to wait before each try.

`limit` deaths `within` a time, or `limit` deaths in a row without `stable` uptime between them,
and the worker is FAILED. The second rule is there because a slow start that always hangs never
fits `limit` deaths into any reasonable time; stable uptime, and nothing else, resets it and the
delay. The first is there because a worker that is stable for a minute and dies each other minute
is no good either; only time takes a death out of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from stepwarden.core.deadline import elapsed
from stepwarden.core.policy import RestartPolicy


@dataclass(frozen=True, slots=True)
class Ledger:
    """Recent deaths (monotonic seconds), and how many in a row without stable uptime between."""

    deaths: tuple[float, ...] = ()
    streak: int = 0

    def used(self, policy: RestartPolicy, now: float) -> int:
        """Deaths that count against the limit now, by whichever rule counts more."""
        recent = sum(1 for at in self.deaths if elapsed(at, now) <= policy.within)
        return max(recent, self.streak)


def record_death(ledger: Ledger, policy: RestartPolicy, uptime: float, now: float) -> Ledger:
    """Count one more death; `uptime` is how long the worker had been ready (0.0: never)."""
    recent = tuple(at for at in ledger.deaths if elapsed(at, now) <= policy.within)
    streak = 1 if uptime >= policy.stable else ledger.streak + 1
    return Ledger((*recent, now)[-policy.limit :], streak)


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
