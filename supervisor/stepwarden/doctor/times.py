"""The clocks of this host: what decisions are made by, and what people read."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass

from stepwarden.clock import suspended_seconds
from stepwarden.doctor.check import Check
from stepwarden.doctor.finding import Finding, ok, unknown, warning
from stepwarden.doctor.process import text_of
from stepwarden.doctor.subject import Subject

THEME = "host"
SOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
SLOW = frozenset({"acpi_pm", "hpet", "jiffies", "pit", "refined-jiffies"})
_TIMEX_BYTES = 256  # struct timex, which is 208; all zeros asks and sets nothing
_TIME_ERROR = 5


@dataclass(frozen=True, slots=True)
class Times:
    """`synchronised` None: the kernel does not say. `suspended`: seconds since boot."""

    synchronised: bool | None
    source: str | None
    suspended: float


def gather(_: Subject) -> Times:
    """Facts of the kernel."""
    return Times(_synchronised(), text_of(SOURCE), suspended_seconds())


def judge(facts: Times) -> Iterator[Finding]:
    """No decision is made by the wall clock, so a wrong one is a warning at most."""
    if facts.synchronised is None:
        yield unknown("the kernel does not say whether the wall clock is synchronised")
    elif facts.synchronised:
        yield ok("the wall clock is synchronised")
    else:
        yield warning(
            "the wall clock is not synchronised: times in events cannot be laid beside those of"
            " other hosts, and certificates may seem expired (no verdict depends on it)",
            "timedatectl set-ntp true, or chrony; in a container this is the host's",
        )
    if facts.source in SLOW:
        yield warning(
            f"the clock source is {facts.source}: each reading costs a microsecond or more, also"
            " in the engine's hot path",
            "see dmesg for why tsc was given up",
        )
    elif facts.source:
        yield ok(f"the clock source is {facts.source}")
    if facts.suspended > 1.0:
        found = f"the host was suspended for {facts.suspended:.0f} s since boot; no clock counts it"
        yield ok(
            found, advice="a host of inference should not sleep: systemctl mask suspend.target"
        )


def _synchronised() -> bool | None:
    try:
        answer = ctypes.CDLL(None, use_errno=True).adjtimex((ctypes.c_char * _TIMEX_BYTES)())
    except (AttributeError, OSError):
        return None
    return None if answer < 0 else answer != _TIME_ERROR


CHECKS = (Check(THEME, "clock", gather, judge),)
