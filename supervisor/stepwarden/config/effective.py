"""A checked file as it holds after defaults, in the shape of the file: it loads again."""

from __future__ import annotations

import signal
from typing import Any

import yaml

from stepwarden.config.settings import BackendConfig, Config, SupervisorSettings, WorkerConfig
from stepwarden.core.budget import Formula, StepRule


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
    return {
        "supervisor": _supervisor(config.supervisor),
        "backends": {name: _backend(backend) for name, backend in config.backends.items()},
        "workers": {name: _worker(worker) for name, worker in config.workers.items()},
    }


def effective_yaml(config: Config) -> str:
    """The same as YAML that `load` takes."""
    data = _quoted(effective(config))
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, width=100, allow_unicode=False)


def _quoted(node: Any) -> Any:
    if isinstance(node, dict):
        return {name: _quoted(value) for name, value in node.items()}
    if isinstance(node, list):
        return [_quoted(item) for item in node]
    return _Text(node) if isinstance(node, str) else node


def _said(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _supervisor(settings: SupervisorSettings) -> dict[str, Any]:
    return _said(
        runtime_dir=str(settings.runtime_dir),
        state_dir=str(settings.state_dir),
        agent_socket=str(settings.agent_socket),
        agent_listen=list(settings.agent_listen),
        admin_socket=str(settings.admin_socket),
        socket_mode=f"{settings.socket_mode:04o}",
        socket_group=settings.socket_group,
        health={"listen": list(settings.health_listen)},
        log={"format": settings.log_format, "level": settings.log_level},
    )


def _backend(backend: BackendConfig) -> dict[str, Any]:
    return {"step": _step(backend.step, backend.hard_cap)}


def _step(step: StepRule, hard_cap: float | None) -> dict[str, Any]:
    tail = _said(per_token=step.per_token, max=step.maximum, hard_cap=hard_cap)
    if isinstance(step, Formula):
        return {"base": step.base, "per_seq": step.per_seq, **tail}
    return {"rows": dict(step.rows), **_said(beyond=step.beyond), **tail}


def _worker(worker: WorkerConfig) -> dict[str, Any]:
    policy = worker.policy
    caps, restart = policy.hard_caps, policy.restart
    return _said(
        backend=policy.backend,
        engine=worker.engine,
        agent=policy.agent,
        command=None if worker.command is None else list(worker.command),
        shell=worker.shell,
        cwd=worker.cwd,
        env=dict(worker.env),
        max_num_seqs=policy.max_num_seqs,
        max_num_batched_tokens=worker.max_num_batched_tokens,
        autostart=policy.autostart,
        step=_step(policy.step, caps.step),
        heartbeat=_said(
            interval=worker.heartbeat_interval,
            timeout=policy.heartbeat_timeout,
            hard_cap=caps.heartbeat,
        ),
        startup=_said(budget=policy.startup, first_step=policy.first_step, hard_cap=caps.startup),
        retry={"window": policy.window, "busy_cpu": policy.busy_cpu},
        busy_factor=policy.busy_factor,
        restart={
            "on": restart.on,
            "delay": restart.delay,
            "factor": restart.factor,
            "max_delay": restart.max_delay,
            "jitter": restart.jitter,
            "limit": restart.limit,
            "within": restart.within,
            "stable": restart.stable,
        },
        stop={
            "signal": signal.Signals(worker.stop_signal).name.removeprefix("SIG"),
            "grace": worker.stop_grace,
        },
        lease_cap=policy.lease_cap,
        output=_said(
            mode=worker.output.mode,
            path=None if worker.output.path is None else str(worker.output.path),
        ),
    )
