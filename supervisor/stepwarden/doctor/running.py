"""All checks side by side, each in a thread of its own and within a limit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline
from stepwarden.doctor.check import Check
from stepwarden.doctor.finding import Finding, Level, unknown
from stepwarden.doctor.subject import Subject
from stepwarden.edge.aside import Aside
from stepwarden.errors import StepwardenError

LIMIT_SECONDS = 8.0
"""For all checks together; a disk or a user database that hangs costs no more."""


@dataclass(frozen=True, slots=True)
class Result:
    """What one check found."""

    theme: str
    name: str
    findings: tuple[Finding, ...]


def run_checks(
    checks: Sequence[Check[Any]], subject: Subject, clock: Clock, limit: float = LIMIT_SECONDS
) -> list[Result]:
    """Make all of them, in their order. One that cannot be made says so; none raises."""

    async def everything() -> list[Result]:
        deadline = Deadline.after(clock.monotonic(), limit)
        looks = (_result(check, subject, clock, deadline, limit) for check in checks)
        return await asyncio.gather(*looks)

    return asyncio.run(everything())


def worst(results: Sequence[Result]) -> Level:
    """PROBLEM or WARNING where there is one, else OK; what is unknown is no fault."""
    levels = {finding.level for result in results for finding in result.findings}
    return next((level for level in (Level.PROBLEM, Level.WARNING) if level in levels), Level.OK)


async def _result(
    check: Check[Any], subject: Subject, clock: Clock, deadline: Deadline, limit: float
) -> Result:
    try:
        found = await Aside(clock).call(lambda: check.look(subject), deadline)
    except TimeoutError:
        found = [unknown(f"no answer within {limit:g} s: a disk, a user database or systemd hangs")]
    except StepwardenError as error:
        found = [unknown(str(error))]
    except OSError as error:
        found = [unknown(f"cannot be looked at: {error}")]
    except Exception as error:  # a fault of ours in one check must not cost the other ones
        text = f"{type(error).__name__}: {error}"
        found = [unknown(f"this check failed, please report it: {text}")]
    return Result(check.theme, check.name, tuple(found))
