"""What a diagnosis comes to: one word of a closed list, and one sentence of grounds."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Diagnosis(StrEnum):
    """Why something is late or ended; the closed list. docs/states.md says what to do about each.

    The `Cause` of a verdict says which deadline passed; this says why.
    """

    IDLE = "idle"  # nothing is in flight
    SLOW = "slow"  # it works on and something moves
    STARVED = "starved"  # it wants to run and does not get CPU or memory
    LOCK_HELD = "lock_held"  # its interpreter lock is held
    WAITING = "waiting"  # asleep with work in flight
    SPINNING = "spinning"  # it burns CPU and nothing else moves
    STOPPED = "stopped"  # somebody has stopped its process
    UNINTERRUPTIBLE = "uninterruptible"  # it hangs in the kernel
    AGENT_SILENT = "agent_silent"  # nothing is heard of its agent, and it lives
    SCHEDULER_STUCK = "scheduler_stuck"  # work waits and no step begins
    RANK_BEHIND = "rank_behind"  # one rank is a step behind its peers
    EXITED = "exited"  # its process ended
    OOM = "oom"  # memory ran out
    UNKILLABLE = "unkillable"  # it does not end, not even by KILL
    SUPERVISOR_PAUSED = "supervisor_paused"  # we stood still ourselves
    UNKNOWN = "unknown"  # nothing of it can be said; never a reason to kill


@dataclass(frozen=True, slots=True)
class Finding:
    """A diagnosis with its grounds. `rank`: whom it names, "" for the worker as a whole."""

    diagnosis: Diagnosis
    sentence: str
    rank: str = ""

    @property
    def text(self) -> str:
        """As it is appended to a verdict."""
        return f"diagnosis {self.diagnosis.value}: {self.sentence}"

    @property
    def data(self) -> dict[str, str]:
        """As an event carries it."""
        return {"diagnosis": self.diagnosis.value, "grounds": self.sentence}


NO_DATA: dict[str, str] = {}


def data_of(finding: Finding | None) -> dict[str, str]:
    """What an event carries of a finding, if there is one."""
    return NO_DATA if finding is None else finding.data
