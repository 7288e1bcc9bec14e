"""What an engine's own counter tells of its progress, for a worker without an agent.

Two numbers are read from its metrics: a counter that grows as work is done, and a gauge that says
how much work is there. A counter that stands still while work is there is late like a step, and
says less: it cannot tell one long step from a hang.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProgressSeen:
    """What the scrapes so far add up to. Instants in monotonic seconds.

    `counter`, `work`: as last read; None: not readable then. `moved_at`: when the counter was last
    seen to change, a restart from zero included. `work_since`: since when work has been there
    without a break; None: none is there, or it cannot be told.
    """

    counter: float | None
    work: float | None
    moved_at: float
    work_since: float | None = None


def progressed(
    previous: ProgressSeen | None, counter: float | None, work: float | None, now: float
) -> ProgressSeen:
    """Take one more scrape in; None for what it did not show.

    A scrape that failed says nothing: what was known stays, and the counter has not moved.
    """
    if previous is None:
        return ProgressSeen(counter, work, now, now if work else None)
    moved = counter is not None and counter != previous.counter
    if work is None:
        since = previous.work_since
    elif work > 0.0:
        since = now if previous.work_since is None else previous.work_since
    else:
        since = None
    return ProgressSeen(
        previous.counter if counter is None else counter,
        previous.work if work is None else work,
        now if moved else previous.moved_at,
        since,
    )
