"""What happened, as data: the edge adds an id and wall time, and journals, logs and counts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Kind(StrEnum):
    """The closed list of event kinds."""

    TRANSITION = "transition"  # a worker went from one state to another
    RETRY = "retry"  # a retry window was over and another was granted
    FALSE_ALARM = "false_alarm"  # a suspicion went away by itself
    SUSPICION = "suspicion"  # one more (rank, cause) while already UNHEALTHY
    AGENT_SILENT = "agent_silent"  # the page moves but no beat arrives
    AGENT_HEARD = "agent_heard"  # beats arrive again
    STARTED = "started"  # a life's main process runs
    ATTACHED = "attached"  # a rank's agent is there
    DETACHED = "detached"  # a rank said bye
    REFUSED = "refused"  # a message was not believed
    BURIAL = "burial"  # a step of ending a tree
    OVER_ROWS = "over_rows"  # a batch beyond the configured rows or an unknown one, once
    LEFT_OPEN = "left_open"  # a step is open while later ones ended: was its end never reported?
    SUPERVISOR_PAUSED = "supervisor_paused"  # our own loop stood still
    HELD = "held"  # a life has begun and waits for something before its process is started
    ADOPTED_UNSEEN = "adopted_unseen"  # an adopted life of which nothing is seen
    RELOADED = "reloaded"  # the configuration file was loaded again
    RELOAD_FAILED = "reload_failed"  # it could not be, and the old configuration holds
    SHADOW_ALARM = "shadow_alarm"  # a rule that only watches would have raised an alarm
    SHADOW_DEATH = "shadow_death"  # it would be DEAD by a rule, or but for its mode (data: rule)
    SHADOW_CLEARED = "shadow_cleared"  # what it was alarmed by has ended by itself
    LEARNED = "learned"  # what is usual was taken over, or dropped, or begins anew
    GOVERNOR = "governor"  # kills are frozen, or go on
    CAPTURED = "captured"  # the stacks of a worker under suspicion were looked at
    INCIDENT = "incident"  # the proof of an incident was kept, or could not be
    OPERATOR = "operator"  # a command was taken
    DAEMON = "daemon"  # the daemon itself started, stopped, had trouble


STILL_OPEN = "still_open"
"""In the data of a FALSE_ALARM: its step has more time and goes on, so nothing is decided."""


@dataclass(frozen=True, slots=True)
class Event:
    """One line of history. `data` holds numbers and short texts only, ready for JSON."""

    kind: Kind
    sentence: str
    worker: str = ""
    incarnation: str = ""
    from_state: str = ""
    to_state: str = ""
    cause: str = ""
    rank: str = ""
    data: Mapping[str, float | int | str | None] = field(default_factory=dict)
