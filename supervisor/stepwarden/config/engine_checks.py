"""Conflicts between an engine's own time-outs and our budgets, as warnings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from stepwarden.config.engines import (
    VLLM,
    VLLM_READY_TIMEOUT,
    VLLM_STEP_DEFAULT,
    VLLM_STEP_TIMEOUT,
    LargestStep,
    largest_step,
)
from stepwarden.config.findings import Findings
from stepwarden.config.problems import Path
from stepwarden.config.settings import WorkerConfig
from stepwarden.config.values import parse_whole
from stepwarden.core.policy import AGENT_NONE, AGENT_REQUIRED
from stepwarden.naming import shown

VLLM_PLUGINS = "VLLM_PLUGINS"
VLLM_PLUGIN = "stepwarden"
"""Which plugins vLLM loads (all of them where it is not set), and what ours is called."""


def check_engine(worker: WorkerConfig, findings: Findings, environment: Mapping[str, str]) -> None:
    """Warn where vLLM would give up on a step or a start before stepwarden does."""
    if worker.engine != VLLM or worker.policy.agent == AGENT_NONE or not worker.argv:
        return  # of a unit, or of what something else starts, nobody here knows the environment
    _check_plugins(worker, findings, environment)
    _check_step(worker, findings, environment)
    found = _operators_value(VLLM_READY_TIMEOUT, worker, findings, environment)
    need = math.ceil(worker.policy.startup_cap())
    if found is not None and found[1] < need:
        path, seconds, says = found
        message = f"{says} is {seconds}, below the hard cap of a start; set at least {need}"
        findings.warning(path, f"{message}, or leave it out")


def _check_plugins(
    worker: WorkerConfig, findings: Findings, environment: Mapping[str, str]
) -> None:
    """Without our plugin there is no agent, and one that is required is missed at the start."""
    path, says, text = _set_value(VLLM_PLUGINS, worker, findings, environment)
    # vLLM splits at commas and compares as it stands: a space makes it another name.
    if text is None or VLLM_PLUGIN in text.split(","):
        return
    message = f"{says} is {shown(text)}, so vLLM does not load the plugin {VLLM_PLUGIN!r}"
    if worker.policy.agent == AGENT_REQUIRED:
        message += " and the agent that is required never comes"
    findings.warning(path, f"{message}; add it there, or leave {VLLM_PLUGINS} out")


def _check_step(worker: WorkerConfig, findings: Findings, environment: Mapping[str, str]) -> None:
    found = _operators_value(VLLM_STEP_TIMEOUT, worker, findings, environment)
    if found is None and worker.policy.agent != AGENT_REQUIRED:
        says = f"vLLM's own {VLLM_STEP_TIMEOUT}, left alone as agent is not required,"
        found = (("workers", worker.name, "engine"), VLLM_STEP_DEFAULT, says)
    if found is None:
        return
    path, seconds, says = found
    need = largest_step(worker.policy, worker.max_num_batched_tokens, worker.stop_grace)
    if seconds < need.budget:
        fact, remedies = below_budget(worker, need, seconds)
        findings.warning(path, f"{says} is {seconds}, {fact}: {', or '.join(remedies)}")
    elif seconds < need.timeout:
        findings.warning(
            path,
            f"{says} is {seconds}, below the hard cap of {need.cap:g} s plus {need.grace:g} s"
            f" grace: vLLM ends busy steps that stepwarden still gives time; {raise_to(need)}",
        )


def below_budget(worker: WorkerConfig, need: LargestStep, seconds: int) -> tuple[str, list[str]]:
    """What a step time-out of `seconds` below the budget means, and what would mend it."""
    policy, tokens = worker.policy, worker.max_num_batched_tokens
    seqs = _largest(policy.max_num_seqs, lambda n: policy.step.budget(n, tokens).seconds <= seconds)
    fact = f"at most {seqs} sequences fit under it"
    remedies = [f"lower max_num_seqs to {seqs}"]
    if seqs == 0:
        fact, remedies = "no batch fits under it by max_num_seqs alone", []
    if policy.step.per_token:
        most = tokens if tokens is not None else 1_000_000_000
        found = _largest(
            most, lambda n: policy.step.budget(policy.max_num_seqs, n).seconds <= seconds
        )
        if found:
            remedies.append(f"lower max_num_batched_tokens to {found}")
    remedies.append(raise_to(need))
    return f"below the budget of the largest step ({need.arithmetic}); {fact}", remedies


def raise_to(need: LargestStep, what: str = "it") -> str:
    """What to do with a step time-out that is too short."""
    return f"set {what} to at least {need.timeout}, or, with agent: required, leave it out"


def _largest(high: int, fits: Callable[[int], bool]) -> int:
    """The largest number from 1 to `high` that fits, where smaller ones fit too; 0: none does."""
    low = 0
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _operators_value(
    variable: str, worker: WorkerConfig, findings: Findings, environment: Mapping[str, str]
) -> tuple[Path, int, str] | None:
    """Where the operator set a time-out, its seconds, and how to call it; None: nowhere."""
    path, says, text = _set_value(variable, worker, findings, environment)
    if text is None:
        return None
    seconds = parse_whole(text)
    if seconds is None:
        findings.warning(path, f"{says} is {shown(text)}, which is not whole seconds")
        return None
    return path, seconds, says


def _set_value(
    variable: str, worker: WorkerConfig, findings: Findings, environment: Mapping[str, str]
) -> tuple[Path, str, str | None]:
    """Where a variable of the worker's environment is set, how to call it, and its text."""
    if variable in worker.env:
        return ("workers", worker.name, "env", variable), variable, worker.env[variable]
    if variable in worker.file_env:
        path = findings.home(worker.name, "env_file")
        return path, f"{variable} in an env_file", worker.file_env[variable]
    says = f"{variable} in the supervisor's own environment"
    return ("workers", worker.name, "engine"), says, environment.get(variable)
