"""What bounds one step of a worker: its YAML, and what was learned within the frame of that."""

from __future__ import annotations

from stepwarden.core.evidence import Step
from stepwarden.core.learned import Bounds, LearnFrame, bounds
from stepwarden.core.policy import WorkerPolicy
from stepwarden.core.usual import Usual


def size_of_step(policy: WorkerPolicy, num_seqs: int | None, num_tokens: int | None) -> int:
    """By what a step is compared with others: its tokens.

    Where an engine does not tell them its sequences, and where it tells nothing the largest batch,
    as the YAML's budgets have it.
    """
    if num_tokens is not None and num_tokens >= 1:
        return num_tokens
    return num_seqs if num_seqs is not None and num_seqs >= 1 else policy.max_num_seqs


def configured(policy: WorkerPolicy, step: Step) -> Bounds:
    """What the YAML says of this step."""
    budget = policy.step_budget(step.num_seqs, step.num_tokens)
    seconds, text = budget.seconds, budget.arithmetic
    if step.number == 1 and policy.first_step > seconds:
        # The first step of a process captures graphs and compiles kernels.
        seconds, text = policy.first_step, f"first step allowance {policy.first_step:g} s"
    return Bounds(seconds, seconds + policy.window, policy.step_cap(seconds), text)


def frame_of(policy: WorkerPolicy) -> LearnFrame:
    """What nothing that is learned may leave."""
    return LearnFrame(policy.window, policy.learn_floor, policy.step.maximum, policy.hard_caps.step)


def bounds_of(policy: WorkerPolicy, usual: Usual, step: Step) -> Bounds:
    """What was learned of steps like this one; as the YAML has it where that is nothing."""
    size = size_of_step(policy, step.num_seqs, step.num_tokens)
    # Steps count from 1 in each process.
    return bounds(usual, size, frame_of(policy), configured(policy, step), step.number - 1)
