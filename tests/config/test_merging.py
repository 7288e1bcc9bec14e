from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from stepwarden.config.loader import load_text
from stepwarden.core import budget
from stepwarden.core.budget import Formula, Rows
from stepwarden.core.policy import WorkerPolicy

TEXT = """\
backends:
  cpu: {step: {per_seq: 2s}}
  npu: {step: {rows: {1: 5s, 8: 8s}, beyond: 9s, per_token: 1ms, hard_cap: 100s}}
defaults:
  agent: optional
  startup: {budget: 20m}
  restart: {"on": failure, limit: 9, within: 1d}
workers:
  a: {backend: cpu, command: [a]}
  b: {backend: npu, command: [a], agent: optional, restart: {limit: 3}, step: {max: 1m}}
  c: {backend: npu, shell: "echo hi", step: {base: 3s}}
  d: {backend: cpu, command: [a], step: {rows: {4: 7s}}}
"""


def test_a_worker_goes_over_the_defaults_and_these_over_the_shipped_ones_key_by_key() -> None:
    workers = load_text(TEXT, Path("c.yaml"), {}).workers
    policy = workers["b"].policy
    assert policy.agent == "optional"
    assert workers["a"].policy.agent == "optional"
    assert (policy.startup, policy.first_step) == (1200.0, 120.0)
    assert (policy.restart.on, policy.restart.limit) == ("failure", 3)
    assert workers["a"].policy.restart.limit == 9
    assert workers["c"].argv == ("/bin/sh", "-c", "echo hi")


def test_a_step_goes_over_the_backends_and_a_change_of_form_drops_the_old_one() -> None:
    workers = load_text(TEXT, Path("c.yaml"), {}).workers
    assert workers["a"].policy.step == Formula(300.0, 2.0, 0.0, 1800.0)
    assert workers["b"].policy.step == Rows(((1, 5.0), (8, 8.0)), 9.0, 0.001, 60.0)
    assert workers["b"].policy.hard_caps.step == 100.0
    assert workers["c"].policy.step == Formula(3.0, 0.0, 0.001, 1800.0)
    assert workers["d"].policy.step == Rows(((4, 7.0),), None, 0.0, 1800.0)


def test_gpu_and_cpu_exist_with_the_shipped_numbers_and_all_other_defaults_are_the_cores() -> None:
    config = load_text("workers: {w: {command: [a], backend: gpu}}", Path("c.yaml"), {})
    assert {name: config.backends[name].step for name in budget.SHIPPED} == budget.SHIPPED
    assert config.workers["w"].policy == WorkerPolicy("w")
    assert config.plain_worker.policy == WorkerPolicy("")


def test_the_operators_environment_goes_over_ours_and_the_file_over_it() -> None:
    text = "workers: {w: {command: [a], backend: gpu, engine: vllm, env: {A: file}}}"
    worker = load_text(text, Path("c.yaml"), {}).workers["w"]
    step = "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"
    made = worker.environment({"A": "daemon", "B": "daemon", step: "7"})
    assert (made["A"], made["B"], made[step]) == ("file", "daemon", "7")
    assert made["VLLM_ENGINE_READY_TIMEOUT_S"] == "1800"


@given(st.integers(1, 4), st.integers(1, 4))
def test_anchors_and_merges_say_the_same_as_writing_it_out(first: int, second: int) -> None:
    text = (
        f"x-a: &a {{A: '{first}', B: '{first}'}}\nx-b: &b {{B: '{second}', C: '{second}'}}\n"
        "workers: {w: {command: [a], backend: cpu, env: {<<: [*a, *b], A: own}}}"
    )
    env = load_text(text, Path("c.yaml"), {}).workers["w"].env
    assert env == {"A": "own", "B": str(first), "C": str(second)}
