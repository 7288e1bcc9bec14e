"""How much of its time a worker could not use, by what the kernel counted between two readings."""

from __future__ import annotations

from stepwarden.core.facts import Pressure, fully_stalled, throttled_between

PERIOD_SECONDS = 0.1
"""Length of the kernel's period of a quota, unless somebody changed it."""


def lost_between(before: Pressure, after: Pressure, host: tuple[Pressure, Pressure]) -> float:
    """Seconds in which a worker could do nothing, between two readings of its group and host.

    The largest of what the kernel counted, for the counts overlap: all of its group wanted a CPU
    and none ran (a spent quota too), or waited for memory, or for a disk. The quota's own counter
    adds up CPUs, so no more than the whole of each throttled period is taken from it. Of the host
    only memory and disks count: that somebody there waits for a CPU says nothing of this worker.
    """
    counts = [fully_stalled(before.cpu, after.cpu), fully_stalled(before.memory, after.memory)]
    counts.append(fully_stalled(before.io, after.io))
    counts += [fully_stalled(host[0].memory, host[1].memory), fully_stalled(host[0].io, host[1].io)]
    held = throttled_between(before, after)
    if held is not None:
        counts.append(min(held.seconds, held.throttled * PERIOD_SECONDS))
    return max(counts)
