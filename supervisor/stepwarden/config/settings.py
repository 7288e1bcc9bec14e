"""What a checked file says, as plain data for the daemon and the commands.

All durations in seconds, all paths absolute, all values within range.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stepwarden.config.problems import Problem
from stepwarden.core.budget import StepRule
from stepwarden.core.policy import WorkerPolicy


@dataclass(frozen=True, slots=True)
class SupervisorSettings:
    """The daemon itself. `socket_group` None: the daemon's own group.

    `agent_listen` and `health_listen` hold TCP addresses as HOST:PORT.
    """

    runtime_dir: Path
    state_dir: Path
    agent_socket: Path
    admin_socket: Path
    agent_listen: tuple[str, ...] = ()
    socket_mode: int = 0o600
    socket_group: str | None = None
    health_listen: tuple[str, ...] = ()
    log_format: str = "auto"
    log_level: str = "info"


@dataclass(frozen=True, slots=True)
class OutputConfig:
    """Where a worker's output goes: `mode` inherit, or append with a `path`."""

    mode: str = "inherit"
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class BackendConfig:
    """What one step may take on this backend. `hard_cap` None: computed."""

    name: str
    step: StepRule
    hard_cap: float | None = None


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """One worker: how it is judged (`policy`) and how it is run.

    Exactly one of `command` and `shell` is not None. `cwd` None: the supervisor's own.
    `stop_signal` is a signal number; `stop_grace` seconds from it until KILL.
    `engine_timeouts` are environment variables that the engine gets unless the operator set them.
    """

    name: str
    policy: WorkerPolicy
    command: tuple[str, ...] | None = None
    shell: str | None = None
    cwd: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    engine: str | None = None
    stop_signal: int = signal.SIGTERM
    stop_grace: float = 30.0
    output: OutputConfig = OutputConfig()
    heartbeat_interval: float = 1.0
    max_num_batched_tokens: int | None = None
    engine_timeouts: dict[str, str] = field(default_factory=dict)

    @property
    def argv(self) -> tuple[str, ...]:
        """What is executed; a shell line goes to /bin/sh."""
        if self.command is not None:
            return self.command
        return ("/bin/sh", "-c", self.shell or "")

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The worker's environment: engine time-outs, over them `base`, over it the file's env.

        So a time-out that the operator set, here or for the daemon, always stays.
        """
        return {**self.engine_timeouts, **base, **self.env}


@dataclass(frozen=True, slots=True)
class Config:
    """A file that can be used. `warnings` are worth reading; none of them prevents a start.

    `plain_worker` has no name and no command: what a worker gets that says nothing itself.
    """

    path: Path
    supervisor: SupervisorSettings
    workers: dict[str, WorkerConfig]
    backends: dict[str, BackendConfig]
    warnings: tuple[Problem, ...] = ()
    plain_worker: WorkerConfig = WorkerConfig("", WorkerPolicy(""))
