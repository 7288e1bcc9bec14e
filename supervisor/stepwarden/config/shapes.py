"""The four shapes of a worker, and which keys mean something for each.

A key that means nothing for its worker is refused where the worker itself writes it. In `defaults`
it may stand: those are shared by workers of all shapes.
"""

from __future__ import annotations

from stepwarden.config.findings import Findings
from stepwarden.config.model import WorkerSection
from stepwarden.config.problems import Path
from stepwarden.config.sections import (
    RestartSection,
    SharedSection,
    StopSection,
)
from stepwarden.core.policy import AGENT_NONE

COMMAND = "command"
SHELL = "shell"
UNIT = "unit"
ATTACH = "attach"
SHAPES = (COMMAND, SHELL, UNIT, ATTACH)

ACCEPTED = "command: [program, argument], shell: a line, unit: NAME.service, or attach:"

_PROCESS = ("runner", "user", "group", "umask", "nice", "limits", "cwd", "env", "env_file")
_STARTED_HERE = (*_PROCESS, "output")
_ATTACHED_NEVER = (*_STARTED_HERE, "pre_start", "release", "needs")
_STEPS = ("step", "heartbeat", "drain", "lease_cap", "learn", "learn_floor")
_TIMES = ("delay", "factor", "max_delay", "jitter", "limit", "within", "stable")
_DELAYS = ("delay", "factor", "max_delay", "jitter")


def shape_of(name: str, section: WorkerSection, findings: Findings) -> str | None:
    """Which of SHAPES a worker has; None where the findings say why it has none."""
    path: Path = ("workers", name)
    written = [shape for shape in SHAPES if getattr(section, shape) is not None]
    if len(written) > 1:
        message = f"{' and '.join(written)} are both written"
        if len(written) > 2:
            message = f"{', '.join(written)} are all written"
        findings.error(path, message, f"only one: {ACCEPTED}")
    elif not written:
        findings.consequence(path, "command, shell, unit or attach is missing", ACCEPTED)
    elif section.command is not None and not (section.command and section.command[0]):
        findings.consequence((*path, COMMAND), "names no program", ACCEPTED)
    else:
        return written[0]
    return None


def check_keys(
    name: str, shape: str, shared: SharedSection, grouped: bool, findings: Findings
) -> None:
    """Refuse every key of a worker that would mean nothing. `grouped`: it is in a group."""
    check = _Keys(("workers", name), findings)
    if shape == UNIT:
        check.refuse("is said by the unit's own file", "with unit, leave it out", *_STARTED_HERE)
        message = "is said by the unit's own file (KillSignal=)"
        check.refuse_below("stop", message, "with unit, command and grace", "signal")
    if shape == ATTACH:
        message = "means nothing for a worker that something else starts"
        check.refuse(message, "with attach, leave it out", *_ATTACHED_NEVER)
        accepted = "with attach, on, limit, within, stable and expect_external"
        check.refuse_below("restart", message, accepted, *_DELAYS)
        _check_agent_of_attached(name, shared, findings)
    else:
        message = "is for workers that something else starts"
        check.refuse_below("restart", message, "only with attach", "expect_external")
    if shared.agent == AGENT_NONE:
        message = "means nothing without an agent"
        check.refuse(message, "leave it out, or agent: required or optional", *_STEPS)
    _check_restart(check, shape, shared.restart, grouped)


class _Keys:
    """Refuses keys of one worker that it writes itself."""

    def __init__(self, path: Path, findings: Findings) -> None:
        self._path = path
        self._findings = findings

    def refuse(self, message: str, accepted: str, *keys: str) -> None:
        for key in keys:
            if self._findings.written((*self._path, key)):
                self._findings.error((*self._path, key), message, accepted, at_key=True)

    def refuse_below(self, section: str, message: str, accepted: str, *keys: str) -> None:
        for key in keys:
            path = (*self._path, section, key)
            if self._findings.written(path):
                self._findings.error(path, message, accepted, at_key=True)


def _check_restart(check: _Keys, shape: str, restart: RestartSection, grouped: bool) -> None:
    if grouped:
        message = "means nothing in a group, which has one restart budget for all its members"
        accepted = "in a group's member, on alone; the rest is at groups.NAME.restart"
        check.refuse_below("restart", message, accepted, *_TIMES)
    elif restart.on == "never" and shape != ATTACH:
        message = "means nothing with on: never"
        check.refuse_below("restart", message, "leave it out, or on: any_exit or failure", *_TIMES)


def _check_agent_of_attached(name: str, shared: SharedSection, findings: Findings) -> None:
    if shared.agent == AGENT_NONE:
        written = findings.written(("workers", name, "agent"))
        path: Path = ("workers", name, "agent") if written else ("defaults", "agent")
        message = f"an attached worker is found by its agent, and {name} has none"
        findings.error(path, message, "required or optional")


def fitting(shared: SharedSection, shape: str, grouped: bool) -> SharedSection:
    """What holds for a worker of this shape: what means nothing for it is as shipped."""
    shipped: list[str] = []
    if shared.agent == AGENT_NONE:
        shipped += ["heartbeat", "drain", "lease_cap", "learn", "learn_floor"]
    if shape in (UNIT, ATTACH):
        shipped += ["output", "user", "group", "umask", "nice", "limits", "env_file"]
    changes: dict[str, object] = {key: getattr(_SHIPPED, key) for key in shipped}
    if shape == UNIT:
        changes["stop"] = shared.stop.model_copy(update={"signal": StopSection().signal})
    changes["restart"] = _fitting_restart(shared.restart, shape, grouped)
    return shared.model_copy(update=changes)


def _fitting_restart(restart: RestartSection, shape: str, grouped: bool) -> RestartSection:
    shipped: tuple[str, ...] = () if shape == ATTACH else ("expect_external",)
    if shape == ATTACH:
        shipped += _DELAYS
    elif restart.on == "never" and not grouped:
        shipped += _TIMES
    fresh = RestartSection()
    return restart.model_copy(update={key: getattr(fresh, key) for key in shipped})


_SHIPPED = SharedSection()
