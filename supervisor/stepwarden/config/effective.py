"""A checked file as it holds after defaults, in the shape of the file: it loads again.

Variables stay as they are written: what they stand for may be secret.
"""

from __future__ import annotations

from typing import Any

import yaml

from stepwarden.config.effective_worker import effective_worker, restart_times, said
from stepwarden.config.effective_worker import step as _step
from stepwarden.config.ready_rules import written_ready_rule
from stepwarden.config.settings import (
    BackendConfig,
    Config,
    GroupConfig,
    IncidentSettings,
    SupervisorSettings,
)
from stepwarden.exposure import ListenSettings


class _Text(str):
    """A text value, which is always written in quotes."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, _: Any) -> bool:
        return True


_Dumper.add_representer(
    _Text, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)


def _represent_number(dumper: yaml.SafeDumper, number: float) -> yaml.ScalarNode:
    """Plain digits, without the exponents that the loader refuses."""
    text = f"{number:.12f}".rstrip("0").rstrip(".")
    kind = "float" if "." in text else "int"
    return dumper.represent_scalar(f"tag:yaml.org,2002:{kind}", text)


_Dumper.add_representer(float, _represent_number)


def effective(config: Config) -> dict[str, Any]:
    """Everything that holds, as plain data; durations in seconds."""
    grouped = {member for group in config.groups.values() for member in group.members}
    groups = {name: effective_group(group) for name, group in config.groups.items()}
    return {
        "supervisor": effective_supervisor(config.supervisor),
        "backends": {name: _backend(backend) for name, backend in config.backends.items()},
        **({"groups": groups} if groups else {}),
        "workers": {
            name: effective_worker(worker, name in grouped)
            for name, worker in config.workers.items()
        },
    }


def effective_yaml(config: Config) -> str:
    """The same as YAML that `load` takes."""
    return as_yaml(effective(config))


def as_yaml(data: dict[str, Any]) -> str:
    """Plain data of a file as YAML."""
    return yaml.dump(_quoted(data), Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=False)


def _quoted(node: Any) -> Any:
    if isinstance(node, dict):
        return {name: _quoted(value) for name, value in node.items()}
    if isinstance(node, list):
        return [_quoted(item) for item in node]
    return _Text(node) if isinstance(node, str) else node


def effective_supervisor(settings: SupervisorSettings) -> dict[str, Any]:
    """The section of the daemon itself."""
    return said(
        runtime_dir=str(settings.runtime_dir),
        state_dir=str(settings.state_dir),
        agent_socket=str(settings.agent_socket),
        admin_socket=str(settings.admin_socket),
        socket_mode=f"{settings.socket_mode:04o}",
        socket_group=settings.socket_group,
        on_exit=settings.on_exit,
        runner=settings.runner,
        stop_limit=settings.stop_limit,
        reload={
            "watch": settings.reload_watch,
            "interval": settings.reload_interval,
            "restart": settings.reload_restart,
        },
        loop_limit=settings.loop_limit,
        governor={
            "deaths": settings.governor.deaths,
            "within": settings.governor.within,
            "freeze_max": settings.governor.freeze_max,
        },
        health={
            **listener(settings.health),
            "ready": written_ready_rule(settings.health_ready),
        },
        agents=listener(settings.agents),
        metrics=listener(settings.metrics),
        log=_log(settings),
        incidents=_incidents(settings.incidents),
        recording={"max_size": settings.recording_size},
    )


def _incidents(settings: IncidentSettings) -> dict[str, Any]:
    return {
        "keep": settings.keep,
        "max_size": settings.max_size,
        "stacks": "auto" if settings.stacks else "off",
        "native": settings.native,
        "output_lines": settings.output_lines,
        "limit": settings.limit,
    }


def _log(settings: SupervisorSettings) -> dict[str, Any]:
    file = None if settings.log_file is None else str(settings.log_file)
    return said(format=settings.log_format, level=settings.log_level, file=file)


def listener(settings: ListenSettings) -> dict[str, Any]:
    """The section of a TCP listener."""
    tls = settings.tls
    files = None if tls is None else {key: str(path) for key, path in tls.named().items()}
    insecure = settings.insecure or None
    return {"listen": list(settings.addresses), **said(tls=files, insecure=insecure)}


def _backend(backend: BackendConfig) -> dict[str, Any]:
    return {"step": _step(backend.step, backend.hard_cap)}


def effective_group(group: GroupConfig) -> dict[str, Any]:
    """The section of one group."""
    return {
        "members": list(group.members),
        "on_dead": str(group.on_dead),
        "restart": restart_times(group.restart),
    }
