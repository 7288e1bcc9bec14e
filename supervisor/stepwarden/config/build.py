"""The validated model to Config: defaults merged in, step rules made, references followed."""

from __future__ import annotations

import difflib
import signal
from pathlib import Path as FilePath

from stepwarden.config.engines import engine_timeouts
from stepwarden.config.findings import Findings
from stepwarden.config.model import File, StepSection, SupervisorSection, WorkerSection
from stepwarden.config.problems import Path
from stepwarden.config.sections import OutputSection, SharedSection, put_over
from stepwarden.config.settings import (
    BackendConfig,
    OutputConfig,
    SupervisorSettings,
    WorkerConfig,
)
from stepwarden.config.steps import build_step, check_form, put_step_over, shipped_steps
from stepwarden.core import budget
from stepwarden.core.policy import HardCaps, RestartPolicy, WorkerPolicy
from stepwarden.naming import shown

MAX_SOCKET_PATH = 107
"""Bytes that the kernel keeps for the path of a unix socket, without the closing NUL."""


def build_supervisor(section: SupervisorSection, findings: Findings) -> SupervisorSettings:
    """The daemon's settings; paths that no socket can have are refused."""
    runtime_dir = FilePath(section.runtime_dir)
    settings = SupervisorSettings(
        runtime_dir=runtime_dir,
        state_dir=FilePath(section.state_dir),
        agent_socket=FilePath(section.agent_socket or runtime_dir / "agent.sock"),
        admin_socket=FilePath(section.admin_socket or runtime_dir / "admin.sock"),
        agent_listen=tuple(section.agent_listen),
        socket_mode=int(section.socket_mode, 8),
        socket_group=section.socket_group,
        health_listen=tuple(section.health.listen),
        log_format=section.log.format,
        log_level=section.log.level,
    )
    for name in ("agent_socket", "admin_socket"):
        said = getattr(section, name) is not None
        path: Path = ("supervisor", name if said else "runtime_dir")
        _check_socket(getattr(settings, name), path, findings)
    if settings.agent_socket == settings.admin_socket:
        message = "the agent and admin sockets are the same file"
        findings.error(("supervisor", "admin_socket"), message, "two different paths")
    _check_addresses(settings, findings)
    return settings


def _check_addresses(settings: SupervisorSettings, findings: Findings) -> None:
    """Refuse what cannot be listened on twice."""
    seen: set[str] = set()
    lists: tuple[tuple[Path, tuple[str, ...]], ...] = (
        (("supervisor", "agent_listen"), settings.agent_listen),
        (("supervisor", "health", "listen"), settings.health_listen),
    )
    for path, addresses in lists:
        for position, address in enumerate(addresses):
            if address in seen and not address.endswith(":0"):
                message = f"the address {address} is written twice"
                findings.error((*path, position), message, "each address once")
            seen.add(address)


def _check_socket(socket: FilePath, path: Path, findings: Findings) -> None:
    length = len(str(socket).encode())
    if length > MAX_SOCKET_PATH:
        message = f"the socket path {socket.name} in it would have {length} bytes"
        findings.error(path, message, f"at most {MAX_SOCKET_PATH} bytes in all")


def build_backends(file: File, findings: Findings) -> dict[str, tuple[StepSection, BackendConfig]]:
    """Every backend that can be used, the shipped ones included, with its merged step section."""
    sections = shipped_steps()
    for name, backend in file.backends.items():
        check_form(backend.step, ("backends", name, "step"), findings)
        sections[name] = put_step_over(sections.get(name, StepSection()), backend.step)
    backends: dict[str, tuple[StepSection, BackendConfig]] = {}
    for name, section in sections.items():
        rule = build_step(section, ("backends", name, "step"), findings)
        if rule is not None:
            backends[name] = (section, BackendConfig(name, rule, section.hard_cap))
    return backends


class WorkerBuilder:
    """Makes workers from one file."""

    def __init__(self, file: File, findings: Findings) -> None:
        self._file = file
        self._findings = findings
        self._backends = build_backends(file, findings)
        self.backends = {name: backend for name, (_, backend) in self._backends.items()}

    def build(self, name: str, section: WorkerSection) -> WorkerConfig | None:
        """One worker; None where the findings say why not."""
        shared = put_over(self._file.defaults, section)
        backend = self._backend(name, section)
        command = self._has_command(name, section)
        output = self._output(name, shared.output)
        if backend is None or output is None or not command:
            return None
        return _worker(name, section, shared, backend, output)

    def plain(self) -> WorkerConfig:
        """What a worker gets that says nothing itself, on the shipped gpu numbers."""
        shared = self._file.defaults
        gpu = BackendConfig("gpu", budget.SHIPPED["gpu"])
        return _worker("", WorkerSection(), shared, gpu, OutputConfig())

    def _backend(self, name: str, section: WorkerSection) -> BackendConfig | None:
        """The step rule that holds for a worker: its backend's, with its own step over it."""
        path = ("workers", name, "step")
        check_form(section.step, path, self._findings)
        if section.backend not in self._backends:
            if section.backend not in self._file.backends:
                near = difflib.get_close_matches(section.backend, self._backends, 1)
                known = ", ".join(sorted(self._backends.keys() | self._file.backends.keys()))
                message = f"there is no backend {shown(section.backend)}"
                suggestion = near[0] if near else ""
                self._findings.error(("workers", name, "backend"), message, known, suggestion)
            return None
        base, backend = self._backends[section.backend]
        if not section.step.model_fields_set:
            return backend
        step = put_step_over(base, section.step)
        rule = build_step(step, path, self._findings)
        return None if rule is None else BackendConfig(backend.name, rule, step.hard_cap)

    def _has_command(self, name: str, section: WorkerSection) -> bool:
        path = ("workers", name)
        accepted = "command: [program, argument] or shell: a line"
        if section.command is not None and section.shell is not None:
            self._findings.error(
                path, "command and shell are both written", f"only one: {accepted}"
            )
        elif section.command is None and section.shell is None:
            self._findings.consequence(path, "command or shell is missing", accepted)
        elif section.command is not None and not (section.command and section.command[0]):
            self._findings.consequence((*path, "command"), "names no program", accepted)
        else:
            return True
        return False

    def _output(self, name: str, output: OutputSection) -> OutputConfig | None:
        own: Path = ("workers", name, "output")
        path = own if self._findings.written(own) else ("defaults", "output")
        if output.mode == "append" and output.path is None:
            self._findings.consequence(path, "mode append needs a path", "path: /some/file")
            return None
        if output.mode != "append" and output.path is not None:
            message = f"mode {output.mode} takes no path"
            self._findings.consequence(path, message, "mode: append with a path")
            return None
        return OutputConfig(output.mode, None if output.path is None else FilePath(output.path))


def _worker(
    name: str,
    section: WorkerSection,
    shared: SharedSection,
    backend: BackendConfig,
    output: OutputConfig,
) -> WorkerConfig:
    policy = _policy(name, section, shared, backend)
    tokens, grace = section.max_num_batched_tokens, shared.stop.grace
    return WorkerConfig(
        name=name,
        policy=policy,
        command=tuple(section.command) if section.command is not None else None,
        shell=section.shell,
        cwd=section.cwd,
        env=dict(section.env),
        engine=section.engine,
        stop_signal=signal.Signals[f"SIG{shared.stop.signal}"],
        stop_grace=grace,
        output=output,
        heartbeat_interval=shared.heartbeat.interval,
        max_num_batched_tokens=tokens,
        engine_timeouts=engine_timeouts(section.engine, policy, tokens, grace),
    )


def _policy(
    name: str, section: WorkerSection, shared: SharedSection, backend: BackendConfig
) -> WorkerPolicy:
    restart = shared.restart
    return WorkerPolicy(
        name=name,
        backend=backend.name,
        step=backend.step,
        max_num_seqs=section.max_num_seqs,
        agent=shared.agent,
        startup=shared.startup.budget,
        first_step=shared.startup.first_step,
        heartbeat_timeout=shared.heartbeat.timeout,
        window=shared.retry.window,
        busy_cpu=shared.retry.busy_cpu,
        busy_factor=shared.busy_factor,
        lease_cap=shared.lease_cap,
        hard_caps=HardCaps(backend.hard_cap, shared.startup.hard_cap, shared.heartbeat.hard_cap),
        restart=RestartPolicy(
            on=restart.on,
            delay=restart.delay,
            factor=restart.factor,
            max_delay=restart.max_delay,
            jitter=restart.jitter,
            limit=restart.limit,
            within=restart.within,
            stable=restart.stable,
        ),
        autostart=section.autostart,
    )
