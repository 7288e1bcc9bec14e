"""The engine's own time-outs: set above ours where stepwarden enforces, compared elsewhere."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.config import WorkerConfig
from stepwarden.config.engines import VLLM_READY_TIMEOUT, VLLM_STEP_TIMEOUT
from stepwarden.config.loader import load_text


def worker(more: str) -> WorkerConfig:
    text = f"workers: {{w: {{command: [a], {more}}}}}"
    return load_text(text, Path("c.yaml"), {}).workers["w"]


def warned(more: str, environment: dict[str, str] | None = None) -> dict[str, str]:
    text = f"workers: {{w: {{command: [a], engine: vllm, {more}}}}}"
    config = load_text(text, Path("c.yaml"), environment or {})
    return {problem.path: problem.message for problem in config.warnings}


def test_an_enforced_vllm_gets_time_outs_above_all_our_hard_caps() -> None:
    made = worker("backend: cpu, engine: vllm, max_num_seqs: 16").engine_timeouts
    assert made == {VLLM_STEP_TIMEOUT: "1294", VLLM_READY_TIMEOUT: "1800"}
    # Four times the first step's 120 s is more than gpu/64 needs.
    made = worker("backend: gpu, engine: vllm, max_num_seqs: 64").engine_timeouts
    assert made[VLLM_STEP_TIMEOUT] == "510"


def test_where_the_learned_rule_judges_its_largest_deadline_counts() -> None:
    text = "backend: gpu, engine: vllm, max_num_seqs: 64, learn: on, step: {max: 10m}"
    assert worker(text).engine_timeouts[VLLM_STEP_TIMEOUT] == str(600 + 30 + 30)


@pytest.mark.parametrize(
    "more",
    [
        "backend: cpu, engine: vllm, agent: optional",
        "backend: cpu, engine: vllm, agent: none",
        "backend: cpu, engine: sglang",
        "backend: cpu",
    ],
)
def test_an_engine_that_is_not_enforced_is_left_alone(more: str) -> None:
    assert worker(more).engine_timeouts == {}


def test_unknown_tokens_take_the_budget_of_the_maximum() -> None:
    step = "step: {per_token: 10ms}"
    unknown = worker(f"backend: gpu, engine: vllm, max_num_seqs: 64, {step}")
    known = worker(
        f"backend: gpu, engine: vllm, max_num_seqs: 64, max_num_batched_tokens: 8192, {step}"
    )
    assert unknown.engine_timeouts[VLLM_STEP_TIMEOUT] == "1860"  # 1800 + window, + grace
    assert known.engine_timeouts[VLLM_STEP_TIMEOUT] == str(math.ceil(4 * (42.8 + 81.92) + 30))


@given(st.integers(1, 10_000), st.floats(1, 100).map(lambda x: round(x, 2)))
def test_the_step_time_out_is_never_below_the_hard_cap_of_any_step(
    seqs: int, factor: float
) -> None:
    made = worker(f"backend: cpu, engine: vllm, max_num_seqs: {seqs}, busy_factor: {factor}")
    timeout = int(made.engine_timeouts[VLLM_STEP_TIMEOUT])
    for batch in {1, seqs // 2 or 1, seqs}:
        cap = made.policy.step_cap(made.policy.step_budget(batch, None).seconds)
        assert timeout >= cap + made.stop_grace
    assert timeout >= made.policy.step_cap(made.policy.first_step) + made.stop_grace


def test_a_value_below_the_budget_says_which_batch_fits_and_what_to_lower() -> None:
    path = f"workers.w.env.{VLLM_STEP_TIMEOUT}"
    found = warned(f"backend: cpu, max_num_seqs: 64, env: {{{VLLM_STEP_TIMEOUT}: '310'}}")
    assert "is 310, below the budget of the largest step" in found[path]
    assert "300 s + 1 s * 64 seqs = 364 s" in found[path]
    assert "at most 10 sequences fit under it: lower max_num_seqs to 10, or set it" in found[path]
    assert "set it to at least 1486" in found[path]


def test_a_value_below_every_budget_says_that_nothing_fits() -> None:
    found = warned(f"backend: cpu, max_num_seqs: 64, env: {{{VLLM_STEP_TIMEOUT}: '1'}}")
    message = found[f"workers.w.env.{VLLM_STEP_TIMEOUT}"]
    assert message.endswith(
        "; no batch fits under it by max_num_seqs alone: set it to at least 1486, or, with agent:"
        " required, leave it out"
    )


def test_tokens_can_be_lowered_too() -> None:
    found = warned(
        "backend: gpu, max_num_seqs: 100, max_num_batched_tokens: 10000,"
        f" step: {{per_token: 10ms}}, env: {{{VLLM_STEP_TIMEOUT}: '100'}}"
    )
    message = found[f"workers.w.env.{VLLM_STEP_TIMEOUT}"]
    assert "no batch fits under it by max_num_seqs alone" in message
    assert "alone: lower max_num_batched_tokens to 5000, or set it to" in message


def test_the_daemons_own_environment_counts_as_the_operators_word() -> None:
    environment = {VLLM_STEP_TIMEOUT: "310", VLLM_READY_TIMEOUT: "60"}
    config = load_text(
        "workers: {w: {command: [a], backend: cpu, engine: vllm, max_num_seqs: 64}}",
        Path("c.yaml"),
        environment,
    )
    messages = [problem.message for problem in config.warnings]
    assert len(messages) == 2
    assert all("in the supervisor's own environment is" in message for message in messages)
    assert config.workers["w"].environment(environment)[VLLM_STEP_TIMEOUT] == "310"


def test_a_value_between_budget_and_hard_cap_is_named_too() -> None:
    found = warned(f"backend: cpu, max_num_seqs: 64, env: {{{VLLM_STEP_TIMEOUT}: '400'}}")
    assert "below the hard cap of 1456 s" in found[f"workers.w.env.{VLLM_STEP_TIMEOUT}"]
    assert warned(f"backend: cpu, max_num_seqs: 64, env: {{{VLLM_STEP_TIMEOUT}: '1486'}}") == {}


def test_vllms_own_default_is_compared_where_we_leave_it_alone() -> None:
    found = warned("backend: cpu, agent: optional")
    assert "left alone as agent is not required, is 300" in found["workers.w.engine"]
    assert warned("backend: cpu, agent: none") == {}


def test_a_value_that_is_no_number_is_named() -> None:
    found = warned(f"backend: cpu, env: {{{VLLM_STEP_TIMEOUT}: soon}}")
    assert "not whole seconds" in found[f"workers.w.env.{VLLM_STEP_TIMEOUT}"]


@pytest.mark.parametrize("text", ["", "other", "other, stepwarden", "Stepwarden"])
def test_plugins_without_ours_are_named(text: str) -> None:
    found = warned(f"backend: cpu, env: {{VLLM_PLUGINS: '{text}'}}")
    message = found["workers.w.env.VLLM_PLUGINS"]
    assert "does not load the plugin 'stepwarden'" in message
    assert "required never comes" in message


def test_plugins_with_ours_or_without_a_word_are_fine() -> None:
    assert warned("backend: cpu, env: {VLLM_PLUGINS: 'other,stepwarden'}") == {}
    assert warned("backend: cpu") == {}
    assert warned("backend: cpu, agent: none, env: {VLLM_PLUGINS: ''}") == {}


def test_the_daemons_own_plugins_count_too() -> None:
    text = "workers: {w: {command: [a], backend: cpu, engine: vllm}}"
    config = load_text(text, Path("c.yaml"), {"VLLM_PLUGINS": "other"})
    (problem,) = config.warnings
    assert problem.message.startswith("VLLM_PLUGINS in the supervisor's own environment is")
