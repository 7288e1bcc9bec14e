"""`supervisor.health.ready`: as it is written, checked, and written again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import Field

from stepwarden.config.fields import Whole
from stepwarden.config.findings import Findings
from stepwarden.config.problems import Path
from stepwarden.config.quantities import WordOr
from stepwarden.config.sections import Section
from stepwarden.config.shape_sections import NAME
from stepwarden.core.ready_rule import ReadyRule
from stepwarden.naming import first_names, nearest, shown

ALL = WordOr("all", "a mapping with at_least, workers, or both")
_PATH: Path = ("supervisor", "health", "ready")


class ReadyRuleSection(Section):
    """When the health name `ready` is SERVING. Instead of a mapping the word `all`: every worker
    that starts with the daemon is HEALTHY.
    """

    at_least: Annotated[int | None, Whole(1, 100_000)] = Field(
        default=None, description="So many HEALTHY ones are enough. Without it: each that counts."
    )
    workers: list[Annotated[str, NAME]] | None = Field(
        default=None,
        min_length=1,
        description="Only these count. Without it: every worker of the file, also one that an"
        " operator starts.",
    )


def build_ready_rule(section: ReadyRuleSection) -> ReadyRule:
    """The rule that a section says."""
    workers = None if section.workers is None else tuple(section.workers)
    return ReadyRule(section.at_least, workers)


def check_ready_rule(rule: ReadyRule, names: Iterable[str], findings: Findings) -> None:
    """Refuse a rule that no crew of these workers can fulfil, or that names nobody."""
    known = list(names)
    _check_names(rule.workers or (), known, findings)
    counted = known if rule.workers is None else set(rule.workers)
    if rule.at_least is not None and rule.at_least > len(counted):
        message = f"at_least {rule.at_least} of {len(counted)} can never be"
        findings.consequence((*_PATH, "at_least"), message, f"up to {len(counted)} here")


def written_ready_rule(rule: ReadyRule) -> str | dict[str, Any]:
    """The rule in the shape of the file."""
    if rule == ReadyRule():
        return "all"
    said: dict[str, Any] = {} if rule.at_least is None else {"at_least": rule.at_least}
    return said if rule.workers is None else {**said, "workers": list(rule.workers)}


def _check_names(names: Iterable[str], known: list[str], findings: Findings) -> None:
    seen: set[str] = set()
    for place, name in enumerate(names):
        path: Path = (*_PATH, "workers", place)
        if name in seen:
            findings.error(path, f"worker {shown(name)} is written twice", "each worker once")
        elif name not in known and not findings.written(("workers", name)):
            meant = nearest(name, known)
            findings.error(path, f"there is no worker {shown(name)}", first_names(known), meant)
        seen.add(name)
