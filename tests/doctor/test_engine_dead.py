"""From an EngineDeadError to what has to be changed, with the worker's own numbers."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from stepwarden.config.engines import VLLM_STEP_TIMEOUT
from stepwarden.doctor import engine_dead as path
from stepwarden.doctor.subject import Daemon
from stepwarden_proto.v1 import supervisor_pb2
from support.doctor_subject import VLLM, subject


@pytest.mark.parametrize(
    ("value", "case", "change"),
    [
        ("330", path.TOO_SHORT, f"set {VLLM_STEP_TIMEOUT} to at least 1486"),
        ("400", path.BETWEEN, f"set {VLLM_STEP_TIMEOUT} to at least 1486"),
        ("1486", path.OURS_FIRST, "see that the value reaches every process"),
        ("soon", path.UNREADABLE, f"set {VLLM_STEP_TIMEOUT} to at least 1486"),
    ],
)
def test_each_case_and_what_to_change_first(
    tmp_path: Path, value: str, case: str, change: str
) -> None:
    asked = subject(tmp_path, VLLM, environment={VLLM_STEP_TIMEOUT: value})
    found = path.engine_dead(asked, asked.workers[0])
    assert (found.case, found.budget, found.hard_cap, found.needed) == (case, 364.0, 1456.0, 1486)
    assert found.change[0].startswith(change)
    told = " ".join(step.answer for step in found.steps)
    assert "300 s + 1 s * 64 seqs = 364 s" in told
    assert found.as_json()["engine_timeout_seconds"] == (int(value) if value != "soon" else None)
    if case == path.TOO_SHORT:
        assert "lower max_num_seqs to 30" in found.change


def test_a_gpu_backend_is_asked_whether_it_is_one(tmp_path: Path) -> None:
    line = "engine: vllm, backend: gpu, agent: optional, command: [vllm]"
    asked = subject(tmp_path, line)
    found = path.engine_dead(asked, asked.workers[0])
    assert (found.case, found.fired) == (path.BETWEEN, 300)
    assert "write backend: cpu" in found.steps[2].answer
    assert any(text.startswith("agent: required") for text in found.change)


def test_a_life_that_runs_with_another_value(tmp_path: Path) -> None:
    """Its environment is read from the process itself."""
    asked = subject(tmp_path, VLLM)
    worker = supervisor_pb2.Worker(
        name="w0", pid=os.getpid(), last_death="rank0 hung", false_alarms=3
    )
    answer = supervisor_pb2.ListWorkersResponse(workers=[worker])
    found = path.engine_dead(replace(asked, daemon=Daemon(answer=answer)), asked.workers[0])
    assert (found.case, found.fired) == (path.TOO_SHORT, 300)
    assert "not set" in found.steps[1].answer
    assert found.change == ("stepwarden restart w0: the next life gets 1486 s, which suffices",)
    assert "rank0 hung" in found.steps[0].answer
    assert "3 late steps ended by themselves" in found.steps[5].answer
