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
from stepwarden.core.governor import GovernorPolicy
from stepwarden.core.groups import GroupPolicy
from stepwarden.core.policy import WorkerPolicy
from stepwarden.core.ready_rule import ReadyRule
from stepwarden.exposure import NOWHERE, ListenSettings

MIB = 1024 * 1024

GroupConfig = GroupPolicy
"""A group is what the core judges it by and nothing else."""


@dataclass(frozen=True, slots=True)
class IncidentSettings:
    """The proof of incidents. At most `keep` bundles and `max_size` bytes; `keep` 0: none.

    `stacks`: by py-spy where it may; `native` with frames of C code. `limit`: seconds for one
    capture, and that a burial waits for it.
    """

    keep: int = 100
    max_size: int = 256 * MIB
    stacks: bool = True
    native: bool = False
    output_lines: int = 100
    limit: float = 5.0


@dataclass(frozen=True, slots=True)
class SupervisorSettings:
    """The daemon itself. `socket_group` None: the daemon's own group.
    `log_file` None: standard error.

    `agents`, `health` and `metrics`: where they listen by TCP. `on_exit` is auto, stop or leave;
    `runner` auto, systemd or spawn. `stop_limit`: seconds that whatever stops the daemon gives it
    to end all workers.
    `loop_limit`: seconds that the loop may stand still before the daemon ends itself; 0: for ever.
    `recording_size`: bytes that all that is recorded for a replay may have; 0: nothing is.
    """

    runtime_dir: Path
    state_dir: Path
    agent_socket: Path
    admin_socket: Path
    agents: ListenSettings = NOWHERE
    socket_mode: int = 0o600
    socket_group: str | None = None
    health: ListenSettings = NOWHERE
    metrics: ListenSettings = NOWHERE
    log_format: str = "auto"
    log_level: str = "info"
    log_file: Path | None = None
    on_exit: str = "auto"
    runner: str = "auto"
    stop_limit: float = 90.0
    reload_watch: bool = True
    reload_interval: float = 1.0
    loop_limit: float = 60.0
    health_ready: ReadyRule = field(default_factory=ReadyRule)
    reload_restart: str = "now"
    governor: GovernorPolicy = field(default_factory=GovernorPolicy)
    incidents: IncidentSettings = IncidentSettings()
    recording_size: int = 64 * MIB


@dataclass(frozen=True, slots=True)
class OutputConfig:
    """Where a worker's output goes.

    `mode` inherit; append, to the file `path`; or capture, into files in the directory `path`, each
    put aside at `max_file` bytes with `keep` of those kept. `path` is None for inherit only.
    """

    mode: str = "inherit"
    path: Path | None = None
    max_file: int = 100 * MIB
    keep: int = 5


@dataclass(frozen=True, slots=True)
class RunAs:
    """As whom a process runs. None: the daemon's own.

    `user` and `group` are names or numbers, as written. `limits` holds resource limits by the
    names of the file (nofile, memlock ...), soft and hard alike; None: unlimited.
    """

    user: str | None = None
    group: str | None = None
    umask: int | None = None
    nice: int | None = None
    limits: dict[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShortCommand:
    """A command that ends by itself, or is ended after `timeout` seconds.

    `ignore_failure`: what follows goes on whatever became of it.
    """

    argv: tuple[str, ...] = field(repr=False)
    timeout: float = 30.0
    ignore_failure: bool = False


@dataclass(frozen=True, slots=True)
class ReadyProbe:
    """What tells that a worker is ready.

    `kind` tcp or grpc: `target` is HOST:PORT; http: a URL that answers with `status`; command:
    `argv` exits with 0; delay: the main process has run for `delay` seconds. `service` is the one
    that grpc asks for. It is asked each `interval` seconds with `timeout` for one answer.
    """

    kind: str
    target: str = ""
    status: int = 200
    service: str = ""
    argv: tuple[str, ...] = field(default=(), repr=False)
    delay: float = 0.0
    interval: float = 1.0
    timeout: float = 2.0


@dataclass(frozen=True, slots=True)
class ProgressCounter:
    """A page of Prometheus metrics that shows whether a worker gets on.

    `counters` grow with finished work, `work` are gauges above 0 while there is some. Read each
    `interval` seconds; with work present the counters may stand still for `budget` seconds.
    """

    url: str
    counters: tuple[str, ...]
    work: tuple[str, ...]
    interval: float = 5.0
    budget: float = 300.0


@dataclass(frozen=True, slots=True)
class ReleaseGate:
    """What must be free before a start: `ports`, unlocked `files`, and a `command` that exits 0.

    Asked until `limit` seconds are over. `command` empty: none.
    """

    ports: tuple[int, ...] = ()
    files: tuple[Path, ...] = ()
    command: tuple[str, ...] = ()
    limit: float = 120.0


@dataclass(frozen=True, slots=True)
class AttachConfig:
    """A worker that something else starts. `expect_user`: whose process, by name or number."""

    expect_user: str


@dataclass(frozen=True, slots=True)
class BackendConfig:
    """What one step may take on this backend. `hard_cap` None: computed."""

    name: str
    step: StepRule
    hard_cap: float | None = None


@dataclass(frozen=True, slots=True)
class Templates:
    """Texts of a worker as written, with ``${VARIABLES}`` not yet replaced. None: not written."""

    command: tuple[str, ...] | None = None
    unit: str | None = None
    cwd: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    env_files: tuple[str, ...] = ()
    output_path: str | None = None
    pre_start: tuple[str, ...] = ()
    stop_command: tuple[str, ...] = ()
    ready: tuple[str, ...] = ()
    release: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """One worker: how it is judged (`policy`) and how it is run.

    Exactly one of `command`, `shell`, `unit` (a systemd service) and `attach` is not None.
    `runner` is auto, systemd or spawn and holds for command and shell only. `cwd` None: the
    supervisor's own. `stop_command` runs first, then `stop_signal` (a number) is sent and KILL
    after `stop_grace` seconds. `ready` None: ready by the agent, without one by the process.
    `needs`: workers that are HEALTHY before this one starts.

    Texts have their variables replaced; `templates` keeps them as written. `file_env` is what the
    files of `env_files` said when the configuration was loaded; see `expand.at_start`.
    `engine_timeouts` are environment variables that the engine gets unless the operator set them.
    """

    name: str
    policy: WorkerPolicy
    command: tuple[str, ...] | None = field(default=None, repr=False)
    shell: str | None = field(default=None, repr=False)
    unit: str | None = None
    attach: AttachConfig | None = None
    runner: str = "auto"
    run_as: RunAs = RunAs()
    cwd: str | None = None
    env: dict[str, str] = field(default_factory=dict, repr=False)
    env_files: tuple[Path, ...] = ()
    engine: str | None = None
    pre_start: ShortCommand | None = None
    stop_command: ShortCommand | None = None
    stop_signal: int = signal.SIGTERM
    stop_grace: float = 30.0
    ready: ReadyProbe | None = None
    progress: ProgressCounter | None = None
    needs: tuple[str, ...] = ()
    release: ReleaseGate | None = None
    output: OutputConfig = OutputConfig()
    heartbeat_interval: float = 1.0
    max_num_batched_tokens: int | None = None
    engine_timeouts: dict[str, str] = field(default_factory=dict)
    templates: Templates = field(default=Templates(), repr=False)
    file_env: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def argv(self) -> tuple[str, ...]:
        """What is executed; a shell line goes to /bin/sh. Empty for unit and attach."""
        if self.command is not None:
            return self.command
        return () if self.shell is None else ("/bin/sh", "-c", self.shell)

    @property
    def kills_at_once(self) -> bool:
        """True where its first signal is KILL, after which nothing is waited for."""
        return self.stop_signal == signal.SIGKILL

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The worker's environment: engine time-outs, `base`, env files, env; the later wins.

        So a time-out that the operator set, here or for the daemon, always stays.
        """
        return {**self.engine_timeouts, **base, **self.file_env, **self.env}


@dataclass(frozen=True, slots=True)
class Config:
    """A file that can be used. `warnings` are worth reading; none of them prevents a start.

    `plain_worker` has no name and no command: what a worker gets that says nothing itself.
    `identity` tells the bytes of the file from any others; "" where there was no file.
    """

    path: Path
    supervisor: SupervisorSettings
    workers: dict[str, WorkerConfig]
    backends: dict[str, BackendConfig]
    groups: dict[str, GroupConfig] = field(default_factory=dict)
    warnings: tuple[Problem, ...] = ()
    plain_worker: WorkerConfig = WorkerConfig("", WorkerPolicy(""))
    identity: str = field(default="", compare=False)
