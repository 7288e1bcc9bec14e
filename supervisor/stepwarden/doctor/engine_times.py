"""The engine's own time-outs as a worker would get them, against our budgets."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from stepwarden.config import WorkerConfig
from stepwarden.config.engine_checks import below_budget, raise_to
from stepwarden.config.engines import (
    VLLM,
    VLLM_READY_TIMEOUT,
    VLLM_STEP_DEFAULT,
    VLLM_STEP_TIMEOUT,
    LargestStep,
    largest_step,
)
from stepwarden.config.values import parse_whole
from stepwarden.doctor.check import Check
from stepwarden.doctor.finding import Finding, ok, problem, warning
from stepwarden.doctor.process import environment_of
from stepwarden.doctor.subject import Subject

THEME = "engines"


@dataclass(frozen=True, slots=True)
class Setting:
    """A time-out of an engine: its seconds (None: no whole number), and who says so.

    `running`: what the life that runs now was started with; None: nobody can tell.
    """

    seconds: int | None
    source: str
    text: str
    running: str | None = None


@dataclass(frozen=True, slots=True)
class Times:
    """One vLLM worker. `step` and `ready` None: it is not we who start it."""

    worker: WorkerConfig
    step: Setting
    ready: Setting | None
    need: LargestStep


def setting(subject: Subject, worker: WorkerConfig, variable: str, default: int | None) -> Setting:
    """What the next life would be given, by the same order as the daemon gives it."""
    running = _running(subject, worker, variable)
    for values, source in (
        (worker.env, "env of the worker in the file"),
        (worker.file_env, "an env_file of the worker"),
        (subject.environment, "the environment that the daemon was started with"),
        (worker.engine_timeouts, "stepwarden, above its own hard cap"),
    ):
        if variable in values:
            text = values[variable]
            return Setting(parse_whole(text), source, text, running)
    says = "nobody: vLLM's own default" if default is not None else "nobody"
    return Setting(default, says, "" if default is None else str(default), running)


def times_of(subject: Subject, worker: WorkerConfig) -> Times:
    """Facts of one worker whose engine is vLLM."""
    need = largest_step(worker.policy, worker.max_num_batched_tokens, worker.stop_grace)
    step = setting(subject, worker, VLLM_STEP_TIMEOUT, VLLM_STEP_DEFAULT)
    ready = setting(subject, worker, VLLM_READY_TIMEOUT, None)
    return Times(worker, step, ready if ready.text else None, need)


def gather(subject: Subject) -> list[Times]:
    """Facts of every vLLM that we start."""
    return [times_of(subject, worker) for worker in subject.started if worker.engine == VLLM]


def judge(facts: list[Times]) -> Iterator[Finding]:
    """Whoever has the shorter time-out decides: it should be the one that tells slow from dead."""
    if not facts:
        yield ok("no worker has an engine with time-outs that we know (engine: vllm)")
    for times in facts:
        yield from _judge_step(times)
        yield from _judge_running(times)
        yield from _judge_ready(times)


def _judge_step(times: Times) -> Iterator[Finding]:
    worker, need, step = times.worker, times.need, times.step
    says = f"{VLLM_STEP_TIMEOUT} is {step.text} (by {step.source})"
    if step.seconds is None:
        yield problem(f"{says}: no whole number of seconds", "write whole seconds", worker.name)
    elif step.seconds < need.budget:
        fact, remedies = below_budget(worker, need, step.seconds)
        yield problem(f"{says}, {fact}", ", or ".join(remedies), worker.name)
    elif step.seconds < need.timeout:
        yield warning(
            f"{says}, below the hard cap of {need.cap:g} s plus {need.grace:g} s grace: vLLM ends"
            " busy steps that stepwarden still gives time",
            raise_to(need),
            worker.name,
        )
    else:
        budget = f"budget {need.budget:g} s, hard cap {need.cap:g} s"
        yield ok(f"{says}, above what its largest step may take ({budget})", worker.name)


def _judge_running(times: Times) -> Iterator[Finding]:
    """A life keeps the environment that it was started with."""
    running, step = times.step.running, times.step
    if running is None or running == step.text:
        return
    yield warning(
        f"the life that runs was started with {VLLM_STEP_TIMEOUT}={running or '(not set: 300)'},"
        f" the next one gets {step.text}",
        f"stepwarden restart {times.worker.name}, at a time of your choice",
        times.worker.name,
    )


def _judge_ready(times: Times) -> Iterator[Finding]:
    ready, need = times.ready, math.ceil(times.worker.policy.startup_cap())
    if ready is not None and (ready.seconds is None or ready.seconds < need):
        yield warning(
            f"{VLLM_READY_TIMEOUT} is {ready.text} (by {ready.source}), below the hard cap of a"
            f" start, {need} s: vLLM gives up on a start that is still loading",
            f"set at least {need}, or leave it out",
            times.worker.name,
        )


def _running(subject: Subject, worker: WorkerConfig, variable: str) -> str | None:
    """ "" where the process that runs does not have it; None where its environment is unknown."""
    answer = subject.daemon.answer
    pids = [] if answer is None else [w.pid for w in answer.workers if w.name == worker.name]
    environment = environment_of(str(pids[0])) if pids and pids[0] > 0 else None
    return None if environment is None else environment.get(variable, "")


CHECKS = (Check(THEME, "time-outs", gather, judge),)
