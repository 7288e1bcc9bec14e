"""What one step may take, with the arithmetic that an operator can check by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stepwarden.config.engines import VLLM, VLLM_STEP_TIMEOUT
from stepwarden.config.settings import WorkerConfig
from stepwarden.core.policy import AGENT_NONE


@dataclass(frozen=True, slots=True)
class Explanation:
    """Budget, hard cap and engine time-out of one step. All in seconds.

    `worker` is empty where only a backend was asked for. `engine_timeout` is what an engine's own
    time-out must reach so that it does not give up first; None where the worker has none that
    we know. `engine_sets` are the variables that this worker gets for its largest step, empty
    where its engine is left alone. `remarks` say what the numbers do not.
    """

    worker: str
    backend: str
    num_seqs: int
    num_tokens: int | None
    budget: float
    budget_arithmetic: str
    hard_cap: float
    hard_cap_arithmetic: str
    engine_timeout: int | None
    engine_arithmetic: str
    engine_sets: dict[str, str]
    watched: bool
    remarks: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The same as a JSON object."""
        return {
            "worker": self.worker or None,
            "backend": self.backend,
            "num_seqs": self.num_seqs,
            "num_tokens": self.num_tokens,
            "budget_seconds": self.budget,
            "budget_arithmetic": self.budget_arithmetic,
            "hard_cap_seconds": self.hard_cap,
            "hard_cap_arithmetic": self.hard_cap_arithmetic,
            "engine_timeout": self._engine_json(),
            "engine_environment": self.engine_sets,
            "watched": self.watched,
            "remarks": list(self.remarks),
        }

    def _engine_json(self) -> dict[str, Any] | None:
        if self.engine_timeout is None:
            return None
        return {
            "engine": VLLM,
            "variable": VLLM_STEP_TIMEOUT,
            "seconds": self.engine_timeout,
            "arithmetic": self.engine_arithmetic,
        }

    def lines(self) -> list[str]:
        """The same for people."""
        tokens = "" if self.num_tokens is None else f", {self.num_tokens} tokens"
        asked = f"worker {self.worker}, " if self.worker else ""
        lines = [
            f"step      {asked}backend {self.backend}, {self.num_seqs} sequences{tokens}",
            f"budget    {self.budget:g} s   {self.budget_arithmetic}",
            f"hard cap  {self.hard_cap:g} s   {self.hard_cap_arithmetic}",
        ]
        if self.engine_timeout is not None:
            lines.append(
                f"engine    {self.engine_timeout} s   {self.engine_arithmetic}: the least that"
                f" {VLLM_STEP_TIMEOUT} of a vLLM may be for this step"
            )
        sets = ", ".join(f"{name}={value}" for name, value in self.engine_sets.items())
        if sets:
            lines.append(f"          this worker gets {sets}, for its largest step and its start")
        return lines + [f"note      {remark}" for remark in self.remarks]


def explain(worker: WorkerConfig, num_seqs: int | None, num_tokens: int | None) -> Explanation:
    """Explain one step of a worker; `num_seqs` None: its `max_num_seqs`."""
    policy = worker.policy
    seqs = policy.max_num_seqs if num_seqs is None else num_seqs
    step = policy.step_budget(seqs, num_tokens)
    cap = policy.step_cap(step.seconds)
    grace = worker.stop_grace
    return Explanation(
        worker=worker.name,
        backend=policy.backend,
        num_seqs=seqs,
        num_tokens=num_tokens,
        budget=step.seconds,
        budget_arithmetic=step.arithmetic,
        hard_cap=cap,
        hard_cap_arithmetic=_cap_arithmetic(worker, step.seconds, cap),
        engine_timeout=math.ceil(cap + grace) if _has_time_out(worker) else None,
        engine_arithmetic=f"{cap:g} s hard cap + {grace:g} s grace, rounded up",
        engine_sets=dict(worker.engine_timeouts),
        watched=policy.agent != AGENT_NONE,
        remarks=tuple(_remarks(worker, seqs)),
    )


def _has_time_out(worker: WorkerConfig) -> bool:
    """A backend alone may be anything's, a vLLM's too."""
    watched = worker.policy.agent != AGENT_NONE
    return watched and (worker.engine == VLLM or not worker.name)


def _remarks(worker: WorkerConfig, seqs: int) -> Iterator[str]:
    policy = worker.policy
    if policy.agent == AGENT_NONE:
        yield "steps of this worker are not watched (agent: none); with an agent, this would hold"
    if worker.progress is not None:
        budget = worker.progress.budget
        yield f"its progress counter may stand still for {budget:g} s while there is work"
    if worker.name and seqs > policy.max_num_seqs:
        yield (
            f"{seqs} sequences are more than max_num_seqs of this worker, {policy.max_num_seqs}:"
            " its engine runs no such step"
        )


def _cap_arithmetic(worker: WorkerConfig, budget: float, cap: float) -> str:
    policy = worker.policy
    override = policy.hard_caps.step
    bound = f"min({policy.busy_factor:g} * {budget:g} s, {policy.step.maximum:g} s)"
    if override is not None:
        bound = f"hard_cap {override:g} s"
    return f"max({budget:g} s + {policy.window:g} s, {bound}) = {cap:g} s"
