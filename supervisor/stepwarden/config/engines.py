"""The time-outs that an engine has of its own, and how they are set above ours.

Only where stepwarden really enforces (a known engine, `agent: required`, `mode: enforce`);
otherwise they are left alone, so that somebody always watches.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stepwarden.core.policy import AGENT_REQUIRED, LEARN_ON, WorkerPolicy

VLLM = "vllm"
VLLM_STEP_TIMEOUT = "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"
VLLM_READY_TIMEOUT = "VLLM_ENGINE_READY_TIMEOUT_S"
VLLM_STEP_DEFAULT = 300
"""What vLLM takes where nobody sets the variable."""


@dataclass(frozen=True, slots=True)
class LargestStep:
    """The longest that any step of a worker may take: budget, hard cap and engine time-out."""

    budget: float
    arithmetic: str
    cap: float
    grace: float

    @property
    def timeout(self) -> int:
        """Whole seconds that an engine's own time-out for a step needs."""
        return math.ceil(self.cap + self.grace)


def largest_step(policy: WorkerPolicy, tokens: int | None, grace: float) -> LargestStep:
    """For the largest batch and for the first step. `tokens` None: as many as the maximum takes."""
    step = policy.step_budget(policy.max_num_seqs, tokens)
    seconds, arithmetic = step.seconds, step.arithmetic
    if policy.step.per_token and tokens is None:
        seconds, arithmetic = policy.step.maximum, "max, as the largest number of tokens is unknown"
    if policy.learn == LEARN_ON:
        seconds, arithmetic = policy.step.maximum, "max, which a learned deadline may reach"
    cap = max(policy.step_cap(seconds), policy.step_cap(policy.first_step))
    return LargestStep(seconds, arithmetic, cap, grace)


def engine_timeouts(
    engine: str | None, policy: WorkerPolicy, tokens: int | None, grace: float
) -> dict[str, str]:
    """Environment variables that put the engine's own time-outs above ours."""
    if engine != VLLM or policy.agent != AGENT_REQUIRED or policy.observe:
        return {}
    return {
        VLLM_STEP_TIMEOUT: str(largest_step(policy, tokens, grace).timeout),
        VLLM_READY_TIMEOUT: str(math.ceil(policy.startup_cap())),
    }
