"""What the admin service shows of a reload and of the file in force, and their wire form."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from stepwarden_proto.v1 import supervisor_pb2 as pb

MAX_PROBLEMS = 100
"""More problems of one file than this are counted and not shown."""


class Effect(StrEnum):
    """What a reload does to somebody."""

    ADDED = "added"
    REMOVED = "removed"
    RESTARTED = "restarted"
    RESTART_NEEDED = "restart_needed"
    ADJUSTED = "adjusted"


@dataclass(frozen=True, slots=True)
class ReloadChange:
    """What a reload does, or would do, to one worker, to a group, or to the supervisor itself.

    `worker`: its name; "" where it is none. `subject`: the same for people, "worker w1". `keys` of
    the file that are others.
    """

    worker: str
    subject: str
    effect: Effect
    sentence: str
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReloadOutcome:
    """What came of one reload. `applied`: the file is in force, also where nothing was different.

    `problems`: why nothing of it was applied. `sentence` says it all in one line.
    """

    applied: bool
    changes: tuple[ReloadChange, ...] = ()
    problems: tuple[str, ...] = ()
    sentence: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigView:
    """The file in force. Times are RFC 3339 with a zone, for people; "" where there is none.

    `failed_at` and `failure`: of the last attempt to load it again, where that failed.
    """

    path: str
    loaded_at: str
    failed_at: str = ""
    failure: str = ""

    @property
    def sentence(self) -> str:
        """The same in one line."""
        text = f"config: {self.path}, loaded {self.loaded_at}"
        if self.failed_at:
            text += f"; last reload failed at {self.failed_at}: {self.failure}"
        return text


@dataclass(slots=True)
class ReloadCounts:
    """For metrics: how many reloads there were, and when the file in force was loaded.

    `succeeded_at` in seconds of the Unix epoch; the load at the start counts, in it alone.
    """

    succeeded_at: float
    succeeded: int = 0
    failed: int = 0
    last_failed: bool = False


def reload_message(outcome: ReloadOutcome, unsettled: list[str]) -> pb.ReloadResponse:
    """Wire form of an outcome. `unsettled`: workers that were waited for in vain."""
    return pb.ReloadResponse(
        applied=outcome.applied,
        changes=[
            pb.ReloadChange(
                subject=change.subject,
                effect=change.effect.value,
                sentence=change.sentence,
                keys=change.keys,
            )
            for change in outcome.changes
        ],
        problems=outcome.problems,
        sentence=outcome.sentence,
        warnings=outcome.warnings,
        unsettled=unsettled,
    )


def config_message(view: ConfigView) -> pb.Configuration:
    """Wire form of what is in force."""
    return pb.Configuration(
        path=view.path,
        loaded_at=view.loaded_at,
        failed_at=view.failed_at,
        failure=view.failure,
        sentence=view.sentence,
    )
