"""One worker as it holds after defaults: only keys that mean something for its shape."""

from __future__ import annotations

import signal
from typing import Any

from stepwarden.config.quantities import UNLIMITED
from stepwarden.config.settings import ReadyProbe, ShortCommand, WorkerConfig
from stepwarden.core.budget import Formula, StepRule
from stepwarden.core.policy import AGENT_NONE, RestartPolicy


def said(**values: Any) -> dict[str, Any]:
    """Those that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def step(rule: StepRule, hard_cap: float | None) -> dict[str, Any]:
    """A step section."""
    tail = said(per_token=rule.per_token, max=rule.maximum, hard_cap=hard_cap)
    if isinstance(rule, Formula):
        return {"base": rule.base, "per_seq": rule.per_seq, **tail}
    return {"rows": dict(rule.rows), **said(beyond=rule.beyond), **tail}


def restart_times(restart: RestartPolicy) -> dict[str, Any]:
    """How often and how soon."""
    return {
        "delay": restart.delay,
        "factor": restart.factor,
        "max_delay": restart.max_delay,
        "jitter": restart.jitter,
        "limit": restart.limit,
        "within": restart.within,
        "stable": restart.stable,
    }


def effective_worker(worker: WorkerConfig, grouped: bool) -> dict[str, Any]:
    """The section of one worker. `grouped`: its group says how often it is started again."""
    policy, texts = worker.policy, worker.templates
    return said(
        backend=policy.backend,
        engine=worker.engine,
        agent=policy.agent,
        command=None if texts.command is None else list(texts.command),
        shell=worker.shell,
        unit=texts.unit,
        attach=None if worker.attach is None else {"expect_user": worker.attach.expect_user},
        **(_process(worker) if worker.argv else {}),
        max_num_seqs=policy.max_num_seqs,
        max_num_batched_tokens=worker.max_num_batched_tokens,
        autostart=policy.autostart,
        needs=list(worker.needs) or None,
        pre_start=_pre_start(worker),
        release=_release(worker),
        ready=None if worker.ready is None else _ready(worker.ready, texts.ready),
        progress=_progress(worker),
        **({} if policy.agent == AGENT_NONE else _steps(worker)),
        startup=said(
            budget=policy.startup,
            first_step=policy.first_step,
            hard_cap=policy.hard_caps.startup,
        ),
        retry={"window": policy.window, "busy_cpu": policy.busy_cpu},
        mode="observe" if policy.observe else "enforce",
        busy_factor=policy.busy_factor,
        restart=_restart(worker, grouped),
        stop=_stop(worker),
    )


def _steps(worker: WorkerConfig) -> dict[str, Any]:
    """What is said of its agent and its steps."""
    policy, caps = worker.policy, worker.policy.hard_caps
    return {
        "step": step(policy.step, caps.step),
        "heartbeat": said(
            interval=worker.heartbeat_interval,
            timeout=policy.heartbeat_timeout,
            hard_cap=caps.heartbeat,
        ),
        "drain": policy.drain,
        "lease_cap": policy.lease_cap,
        "learn": policy.learn,
        "learn_floor": policy.learn_floor,
    }


def _process(worker: WorkerConfig) -> dict[str, Any]:
    """What is said of processes that are started here."""
    run_as, texts, output = worker.run_as, worker.templates, worker.output
    limits = {name: UNLIMITED if limit is None else limit for name, limit in run_as.limits.items()}
    captured = output.mode == "capture"
    return said(
        runner=worker.runner,
        cwd=texts.cwd,
        user=run_as.user,
        group=run_as.group,
        umask=None if run_as.umask is None else f"{run_as.umask:04o}",
        nice=run_as.nice,
        limits=limits or None,
        env=dict(texts.env),
        env_file=list(texts.env_files) or None,
        output=said(
            mode=output.mode,
            path=texts.output_path,
            max_file=output.max_file if captured else None,
            keep=output.keep if captured else None,
        ),
    )


def _restart(worker: WorkerConfig, grouped: bool) -> dict[str, Any]:
    policy, restart = worker.policy, worker.policy.restart
    times = restart_times(restart)
    if grouped or (restart.on == "never" and not policy.attached):
        times = {}
    elif policy.attached:
        times = {key: times[key] for key in ("limit", "within", "stable")}
    external = {"expect_external": policy.expect_external} if policy.attached else {}
    return {"on": restart.on, **times, **external}


def _stop(worker: WorkerConfig) -> dict[str, Any]:
    command, name = worker.stop_command, signal.Signals(worker.stop_signal).name
    return said(
        command=None if command is None else list(worker.templates.stop_command),
        timeout=None if command is None else command.timeout,
        signal=None if worker.unit is not None else name.removeprefix("SIG"),
        grace=worker.stop_grace,
    )


def _pre_start(worker: WorkerConfig) -> dict[str, Any] | None:
    command: ShortCommand | None = worker.pre_start
    if command is None:
        return None
    return {
        "command": list(worker.templates.pre_start),
        "ignore_failure": command.ignore_failure,
        "timeout": command.timeout,
    }


def _release(worker: WorkerConfig) -> dict[str, Any] | None:
    gate = worker.release
    if gate is None:
        return None
    return said(
        ports=list(gate.ports) or None,
        files=[str(file) for file in gate.files] or None,
        command=list(worker.templates.release) or None,
        limit=gate.limit,
    )


def _ready(probe: ReadyProbe, argv: tuple[str, ...]) -> dict[str, Any]:
    if probe.kind == "delay":
        return {"delay": probe.delay}
    return said(
        **{probe.kind: list(argv) if probe.kind == "command" else probe.target},
        status=probe.status if probe.kind == "http" else None,
        service=probe.service if probe.kind == "grpc" else None,
        interval=probe.interval,
        timeout=probe.timeout,
    )


def _progress(worker: WorkerConfig) -> dict[str, Any] | None:
    counter = worker.progress
    if counter is None:
        return None
    return {
        "url": counter.url,
        "counter": list(counter.counters),
        "work": list(counter.work),
        "interval": counter.interval,
        "budget": counter.budget,
    }
