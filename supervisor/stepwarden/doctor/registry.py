"""Every check, in the order in which they are told."""

from __future__ import annotations

from typing import Any

from stepwarden.doctor import (
    accounts,
    daemon_state,
    engine_packages,
    engine_times,
    groups,
    limits,
    machine,
    network,
    places,
    seeing,
    service,
    sockets,
    times,
)
from stepwarden.doctor.check import Check

CHECKS: tuple[Check[Any], ...] = (
    *accounts.CHECKS,
    *daemon_state.CHECKS,
    *service.CHECKS,
    *sockets.CHECKS,
    *places.CHECKS,
    *seeing.CHECKS,
    *groups.CHECKS,
    *limits.CHECKS,
    *network.CHECKS,
    *engine_times.CHECKS,
    *engine_packages.CHECKS,
    *times.CHECKS,
    *machine.CHECKS,
)
"""The next module of checks goes here."""
