"""What systemd says of a unit, as plain facts. The properties come in as D-Bus gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stepwarden.core.evidence import Exit, ProcessId
from stepwarden.edge.cgroup import at_control_group
from stepwarden.edge.process_probe import identify

Properties = Mapping[str, tuple[str, Any]]
"""Name -> (signature, value)."""

_EXITED, _KILLED, _DUMPED = 1, 2, 3  # CLD_* of waitid(2)


@dataclass(frozen=True, slots=True)
class UnitFacts:
    """One unit at one instant.

    `main`: the process that runs now; None where none does, or it ended just now. `exit`: how the
    last one ended; None while one runs, and where none ever ran. `exec_status`: its raw exit
    status, which holds systemd's own codes (200 and up) where the command was never reached.
    `cgroup`: "" where the unit has none, which is so soon after its last process ended. `job`: type
    of the job that is queued or runs for it, "" for none. `restart`: its own Restart=.
    `invocation`: changes with every start.
    """

    name: str
    load_state: str
    active_state: str
    sub_state: str
    result: str
    main: ProcessId | None
    main_pid: int
    exit: Exit | None
    exec_status: int
    cgroup: str
    restart: str
    invocation: str
    job: str

    @property
    def running(self) -> bool:
        """True while it is active, or on the way there or back."""
        return self.active_state not in {"inactive", "failed"}


def read_facts(properties: Properties) -> UnitFacts | None:
    """The facts; None where systemd knows no such unit."""
    load_state = _text(properties, "LoadState")
    if load_state == "not-found":
        return None
    cgroup = _text(properties, "ControlGroup")
    main_pid = _number(properties, "MainPID")
    return UnitFacts(
        name=_text(properties, "Id"),
        load_state=load_state,
        active_state=_text(properties, "ActiveState"),
        sub_state=_text(properties, "SubState"),
        result=_text(properties, "Result"),
        main=main_process(main_pid, cgroup),
        main_pid=main_pid,
        exit=_exit(properties) if main_pid == 0 else None,
        exec_status=_number(properties, "ExecMainStatus"),
        cgroup=cgroup,
        restart=_text(properties, "Restart") or "no",
        invocation=bytes(_value(properties, "InvocationID", b"")).hex(),
        job="",
    )


def main_process(pid: int, cgroup: str) -> ProcessId | None:
    """Who has this pid, if it belongs to the cgroup; None otherwise: the pid was given on."""
    process = identify(pid) if pid > 1 else None
    return process if process is not None and _belongs(process.pid, cgroup) else None


def unit_of_process(pid: str = "self") -> str | None:
    """The service that a process is in, by its control group alone; None where it is in none."""
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    for line in lines:
        controllers, path = line.split(":", 2)[1:]
        if controllers in {"", "name=systemd"}:
            services = [part for part in path.split("/") if part.endswith(".service")]
            if services:
                return services[-1]
    return None


def members(cgroup: str) -> frozenset[ProcessId]:
    """Everybody in a unit's control group and below; empty where it is gone. Raises OSError."""
    group = at_control_group(cgroup)
    pids = frozenset() if group is None else group.processes()
    return frozenset(process for process in map(identify, pids) if process is not None)


def _belongs(pid: int, cgroup: str) -> bool:
    try:
        lines = Path(f"/proc/{pid}/cgroup").read_text(errors="surrogateescape").splitlines()
    except OSError:  # it has ended
        return False
    for line in lines:
        controllers, path = line.split(":", 2)[1:]
        # systemd keeps its tree in version 2 or, on older hosts, in a hierarchy of its own.
        if controllers in {"", "name=systemd"} and (path + "/").startswith(cgroup + "/"):
            return bool(cgroup)
    return False


def _exit(properties: Properties) -> Exit | None:
    code, status = _number(properties, "ExecMainCode"), _number(properties, "ExecMainStatus")
    oom = _text(properties, "Result") == "oom-kill"
    if code == _EXITED:
        return Exit(code=status, oom=oom)
    return Exit(signal=status, oom=oom) if code in {_KILLED, _DUMPED} else None


def _value(properties: Properties, name: str, otherwise: Any) -> Any:
    return properties[name][1] if name in properties else otherwise


def _text(properties: Properties, name: str) -> str:
    return str(_value(properties, name, ""))


def _number(properties: Properties, name: str) -> int:
    return int(_value(properties, name, 0))
