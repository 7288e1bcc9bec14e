"""What began before a reload is judged by the rules of then too, wherever those are kinder.

A reload must kill nobody: the step that is open keeps the budget that it began with, and a larger
one helps it at once. What begins later has the new rules alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from stepwarden.core.clocks import RunningClock, Scene, running_clocks
from stepwarden.core.deadline import Deadline, elapsed
from stepwarden.core.policy import WorkerPolicy

MOST = 8
"""So many former policies are remembered while something that began under them still runs."""


@dataclass(frozen=True, slots=True)
class Former:
    """The policy that held until a reload at `until` (monotonic seconds)."""

    policy: WorkerPolicy
    until: float


Formers = tuple[Former, ...]


def with_former(formers: Formers, before: WorkerPolicy, after: WorkerPolicy, now: float) -> Formers:
    """Remember the policy that a reload replaces now."""
    if before == after:
        return formers
    return (*(former for former in formers if former.policy != after), Former(before, now))[-MOST:]


def clocks_with(scene: Scene, formers: Formers) -> tuple[RunningClock, ...]:
    """Every clock that runs now, by the kindest policy that has held since it began."""
    clocks = running_clocks(scene)
    for former in reversed(formers):
        if any(clock.began <= former.until for clock in clocks):
            old = {clock.key: clock for clock in running_clocks(_under(scene, former))}
            clocks = tuple(_kinder(clock, old.get(clock.key), former.until) for clock in clocks)
    return clocks


def still_needed(formers: Formers, clocks: Iterable[RunningClock]) -> Formers:
    """Those under which something began that still runs."""
    oldest = min((clock.began for clock in clocks), default=None)
    if oldest is None:
        return ()
    return tuple(former for former in formers if oldest <= former.until)


def longest_wait(policy: WorkerPolicy, formers: Formers, began: float) -> float:
    """How long a platform may take that was asked at `began`."""
    held = [former.policy for former in formers if began <= former.until]
    return max(known.expect_external for known in (policy, *held))


def _under(scene: Scene, former: Former) -> Scene:
    return replace(scene, policy=former.policy)


def _kinder(clock: RunningClock, old: RunningClock | None, until: float) -> RunningClock:
    if clock.began > until:
        return clock
    if old is None:  # nothing of the kind was timed before the reload
        return _timed_from(clock, until)
    if old.deadline.later_than(clock.deadline):
        clock = replace(
            clock,
            budget=old.budget,
            deadline=old.deadline,
            arithmetic=old.arithmetic,
            starved=old.starved,
        )
    if old.cap_at > clock.cap_at:
        clock = replace(clock, hard_cap=old.hard_cap, cap_at=old.cap_at)
    if old.idle_at is not None and old.idle_at > (clock.idle_at or 0.0):
        clock = replace(clock, idle_at=old.idle_at)
    return clock


def _timed_from(clock: RunningClock, instant: float) -> RunningClock:
    later = elapsed(clock.began, instant)
    at = None if clock.deadline.at is None else clock.deadline.at + later
    return replace(clock, began=instant, deadline=Deadline(at), cap_at=clock.cap_at + later)
