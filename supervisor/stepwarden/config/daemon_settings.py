"""The daemon's own settings, from the validated section."""

from __future__ import annotations

from pathlib import Path as FilePath

from stepwarden.config.findings import Findings
from stepwarden.config.incident_section import build_incidents
from stepwarden.config.listen_section import listen_settings
from stepwarden.config.model import (
    AgentsSection,
    HealthSection,
    MetricsSection,
    SupervisorSection,
)
from stepwarden.config.problems import Path
from stepwarden.config.ready_rules import build_ready_rule
from stepwarden.config.settings import SupervisorSettings
from stepwarden.core.governor import GovernorPolicy
from stepwarden.exposure import ListenSettings

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
        agents=_listener(section.agents, "agents", findings),
        socket_mode=int(section.socket_mode, 8),
        socket_group=section.socket_group,
        health=_listener(section.health, "health", findings),
        metrics=_listener(section.metrics, "metrics", findings),
        log_format=section.log.format,
        log_level=section.log.level,
        log_file=None if section.log.file is None else FilePath(section.log.file),
        on_exit=section.on_exit,
        runner=section.runner,
        stop_limit=section.stop_limit,
        reload_watch=section.reload.watch,
        reload_interval=section.reload.interval,
        loop_limit=section.loop_limit,
        health_ready=build_ready_rule(section.health.ready),
        reload_restart=section.reload.restart,
        governor=GovernorPolicy(
            section.governor.deaths, section.governor.within, section.governor.freeze_max
        ),
        incidents=build_incidents(section.incidents),
        recording_size=section.recording.max_size,
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


def _listener(
    section: AgentsSection | HealthSection | MetricsSection, key: str, findings: Findings
) -> ListenSettings:
    return listen_settings(section, section.listen, ("supervisor", key), findings)


def _check_addresses(settings: SupervisorSettings, findings: Findings) -> None:
    """Refuse what cannot be listened on twice."""
    seen: set[str] = set()
    lists: tuple[tuple[Path, tuple[str, ...]], ...] = (
        (("supervisor", "agents", "listen"), settings.agents.addresses),
        (("supervisor", "health", "listen"), settings.health.addresses),
        (("supervisor", "metrics", "listen"), settings.metrics.addresses),
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
