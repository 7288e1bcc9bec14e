"""What is wrong with workers only beside each other, or beside the daemon's own settings."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from stepwarden.config.findings import Findings
from stepwarden.config.ready_rules import check_ready_rule
from stepwarden.config.settings import SupervisorSettings, WorkerConfig
from stepwarden.config.values import seconds_text

SHIPPED_UNIT = "stepwarden.service"
STOP_MARGIN = 30.0
"""Seconds beyond the longest stop that the daemon itself may need to end."""


def check_together(
    workers: Mapping[str, WorkerConfig],
    supervisor: SupervisorSettings,
    findings: Findings,
) -> None:
    """Say what does not fit together."""
    _check_outputs(workers, findings)
    _check_units(workers, findings)
    _check_stop_limit(workers, supervisor, findings)
    check_ready_rule(supervisor.health_ready, workers, findings)


def _check_outputs(workers: Mapping[str, WorkerConfig], findings: Findings) -> None:
    """A file that is turned over belongs to one worker alone; appending can be shared."""
    owners: dict[str, WorkerConfig] = {}
    for worker in workers.values():
        if worker.output.path is None:
            continue
        first = owners.setdefault(str(worker.output.path), worker)
        if first is not worker and "capture" in (first.output.mode, worker.output.mode):
            message = f"worker {first.name} writes to {worker.output.path} too"
            path = findings.home(worker.name, "output", "path")
            findings.error(path, message, "for captured output, a directory of its own")


def _check_units(workers: Mapping[str, WorkerConfig], findings: Findings) -> None:
    owners: dict[str, str] = {}
    for name, worker in workers.items():
        if worker.unit is None:
            continue
        first = owners.setdefault(worker.unit, name)
        if first != name:
            message = f"worker {first} has {worker.unit} too"
            findings.error(("workers", name, "unit"), message, "each unit at one worker")


def check_own_unit(
    workers: Mapping[str, WorkerConfig], environment: Mapping[str, str], findings: Findings
) -> None:
    """Refuse a worker that would be the daemon itself."""
    own = {SHIPPED_UNIT, _own_unit(environment)}
    for name, worker in workers.items():
        if worker.unit in own:
            message = f"{worker.unit} is the daemon's own unit"
            findings.error(("workers", name, "unit"), message, "the unit of a server")


def _own_unit(environment: Mapping[str, str]) -> str:
    """The service that this very process is the main one of; "" where it is of none."""
    if environment.get("SYSTEMD_EXEC_PID") != str(os.getpid()):
        return ""
    try:
        group = Path("/proc/self/cgroup").read_text("utf-8", "replace")
    except OSError:
        return ""
    return next((name for name in re.findall(r"/([^/\n]+\.service)$", group, re.M)), "")


def stop_seconds(worker: WorkerConfig) -> float:
    """The longest that a commanded stop of this worker takes before KILL."""
    command = 0.0 if worker.stop_command is None else worker.stop_command.timeout
    return command + (0.0 if worker.kills_at_once else worker.stop_grace)


def _check_stop_limit(
    workers: Mapping[str, WorkerConfig], supervisor: SupervisorSettings, findings: Findings
) -> None:
    ours = [worker for worker in workers.values() if worker.attach is None]
    if supervisor.on_exit == "leave" or not ours:
        return
    longest = max(ours, key=stop_seconds)
    seconds, limit = stop_seconds(longest), supervisor.stop_limit
    if seconds + STOP_MARGIN > limit:
        need = seconds_text(seconds + STOP_MARGIN)
        findings.warning(
            findings.home(longest.name, "stop"),
            f"stopping {longest.name} may take {seconds_text(seconds)}, and the daemon is killed"
            f" after supervisor.stop_limit, {seconds_text(limit)}; set that, and TimeoutStopSec of"
            f" its unit, to at least {need}",
        )
