"""The validated model to Config: defaults merged in, step rules made, references followed."""

from __future__ import annotations

import signal
from dataclasses import replace
from functools import cached_property

from stepwarden.config.engines import engine_timeouts
from stepwarden.config.findings import Findings
from stepwarden.config.groups import build_groups, group_of, restart_times
from stepwarden.config.model import File, StepSection, WorkerSection
from stepwarden.config.parts import PartsBuilder, check_stop
from stepwarden.config.sections import SharedSection, put_over
from stepwarden.config.settings import (
    AttachConfig,
    BackendConfig,
    SupervisorSettings,
    Templates,
    WorkerConfig,
)
from stepwarden.config.shapes import ATTACH, UNIT, check_keys, fitting, shape_of
from stepwarden.config.steps import build_step, check_form, put_step_over, shipped_steps
from stepwarden.core import budget
from stepwarden.core.policy import HardCaps, RestartPolicy, WorkerPolicy
from stepwarden.naming import first_names, nearest, shown


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
    """Makes groups and workers from one file. Texts still hold their variables."""

    def __init__(self, file: File, supervisor: SupervisorSettings, findings: Findings) -> None:
        self._file = file
        self._supervisor = supervisor
        self._findings = findings
        self._backends = build_backends(file, findings)
        self.backends = {name: backend for name, (_, backend) in self._backends.items()}
        self.groups = build_groups(file, findings)
        self._homes = group_of(self.groups)
        self._check_unused()

    def build(self, name: str, section: WorkerSection) -> WorkerConfig | None:
        """One worker; None where the findings say why not."""
        group = self._homes.get(name)
        said = put_over(self._file.defaults, section)
        backend = self._backend(name, section)
        shape = shape_of(name, section, self._findings)
        if shape is None or backend is None:
            return None
        check_keys(name, shape, said, group is not None, self._findings)
        check_stop(name, said.stop, self._findings)
        shared = fitting(said, shape, group is not None)
        restart = restart_times(shared.restart, shared.restart.on)
        if group is not None:
            restart = replace(group.restart, on=shared.restart.on)
        policy = _policy(name, section, shared, backend, restart)
        return self._worker(policy, section, shared, shape)

    def group_of(self, name: str) -> str:
        """The name of a worker's group; "" where it is in none."""
        return self._homes[name].name if name in self._homes else ""

    def plain(self) -> WorkerConfig:
        """What a worker gets that says nothing itself, on the shipped gpu numbers."""
        shared = self._file.defaults
        gpu = BackendConfig("gpu", budget.SHIPPED["gpu"])
        restart = restart_times(shared.restart, shared.restart.on)
        return WorkerConfig(
            name="",
            policy=_policy("", WorkerSection(), shared, gpu, restart),
            stop_signal=signal.Signals[f"SIG{shared.stop.signal}"],
            stop_grace=shared.stop.grace,
            heartbeat_interval=shared.heartbeat.interval,
        )

    def _worker(
        self, policy: WorkerPolicy, section: WorkerSection, shared: SharedSection, shape: str
    ) -> WorkerConfig:
        parts = PartsBuilder(policy.name, section, shared, self._findings)
        tokens, grace = section.max_num_batched_tokens, shared.stop.grace
        ready = parts.ready()
        progress = parts.progress()
        engine = None if shape in (UNIT, ATTACH) else section.engine
        worker = WorkerConfig(
            name=policy.name,
            policy=replace(
                policy,
                attached=shape == ATTACH,
                probed=ready is not None,
                progress_budget=None if progress is None else progress.budget,
            ),
            command=tuple(section.command) if section.command is not None else None,
            shell=section.shell,
            unit=section.unit,
            attach=None if section.attach is None else AttachConfig(section.attach.expect_user),
            runner=section.runner or self._supervisor.runner,
            run_as=parts.run_as(),
            cwd=section.cwd,
            env=dict(section.env),
            engine=section.engine,
            pre_start=parts.pre_start(),
            stop_command=parts.stop_command(),
            stop_signal=signal.Signals[f"SIG{shared.stop.signal}"],
            stop_grace=grace,
            ready=ready,
            progress=progress,
            needs=tuple(section.needs),
            release=parts.release(),
            output=parts.output(self._supervisor.state_dir),
            heartbeat_interval=shared.heartbeat.interval,
            max_num_batched_tokens=tokens,
            engine_timeouts=engine_timeouts(engine, policy, tokens, grace),
        )
        return replace(worker, templates=_templates(worker, section, shared))

    def _check_unused(self) -> None:
        used = {section.backend for section in self._file.workers.values()}
        for name in self._file.backends:
            if name in used or name in budget.SHIPPED:
                continue
            self._findings.warning(("backends", name), "no worker has this backend")

    @cached_property
    def _known(self) -> str:
        return first_names(sorted(self._backends.keys() | self._file.backends.keys()))

    def _backend(self, name: str, section: WorkerSection) -> BackendConfig | None:
        """The step rule that holds for a worker: its backend's, with its own step over it."""
        path = ("workers", name, "step")
        check_form(section.step, path, self._findings)
        if section.backend not in self._backends:
            if section.backend not in self._file.backends:
                message = f"there is no backend {shown(section.backend)}"
                meant = nearest(section.backend, self._backends)
                self._findings.error(("workers", name, "backend"), message, self._known, meant)
            return None
        base, backend = self._backends[section.backend]
        if not section.step.model_fields_set:
            return backend
        step = put_step_over(base, section.step)
        rule = build_step(step, path, self._findings)
        return None if rule is None else BackendConfig(backend.name, rule, step.hard_cap)


def _templates(worker: WorkerConfig, section: WorkerSection, shared: SharedSection) -> Templates:
    """The texts of a worker whose variables are replaced later, as they are written."""
    return Templates(
        command=worker.command,
        unit=worker.unit,
        cwd=worker.cwd,
        env=dict(section.env),
        env_files=tuple(shared.env_file),
        output_path=None if worker.output.path is None else str(worker.output.path),
        pre_start=() if worker.pre_start is None else worker.pre_start.argv,
        stop_command=() if worker.stop_command is None else worker.stop_command.argv,
        ready=() if worker.ready is None else worker.ready.argv,
        release=() if worker.release is None else worker.release.command,
    )


def _policy(
    name: str,
    section: WorkerSection,
    shared: SharedSection,
    backend: BackendConfig,
    restart: RestartPolicy,
) -> WorkerPolicy:
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
        restart=restart,
        autostart=section.autostart,
        expect_external=shared.restart.expect_external,
        drain=shared.drain,
        learn=shared.learn,
        learn_floor=shared.learn_floor,
        observe=shared.mode == "observe",
    )
