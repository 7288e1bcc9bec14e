from __future__ import annotations

import json
from pathlib import Path

import pytest
from stepwarden.cli.main import main

FILE = """\
backends:
  npu: {step: {rows: {1: 5s, 8: 8s}, hard_cap: 5m}}
defaults: {retry: {window: 10s}, stop: {grace: 5s}}
workers:
  gemma: {backend: cpu, engine: vllm, max_num_seqs: 64, command: [a]}
"""


MORE = """\
  bare: {agent: none, engine: vllm, command: [a]}
  other: {backend: cpu, engine: sglang, max_num_seqs: 4, command: [a]}
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(FILE + MORE)
    return str(path)


def test_the_shipped_backends_need_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--backend", "cpu", "--num-seqs", "16"]) == 0
    output = capsys.readouterr().out
    assert "300 s + 1 s * 16 seqs = 316 s" in output
    assert "max(316 s + 30 s, min(4 * 316 s, 1800 s)) = 1264 s" in output
    assert main(["explain", "--backend", "gpu", "--num-seqs", "64", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["budget_seconds"], answer["hard_cap_seconds"]) == (42.8, 171.2)
    assert answer["engine_timeout"]["seconds"] == 202


def test_a_worker_takes_its_largest_batch_where_none_is_given(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "--worker", "gemma", "--config", file]) == 0
    output = capsys.readouterr().out
    assert "64 sequences" in output
    assert "max(364 s + 10 s, min(4 * 364 s, 1800 s)) = 1456 s" in output
    assert "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=1461" in output


def test_an_unwatched_worker_is_said_to_be_one(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "--worker", "bare", "--config", file]) == 0
    output = capsys.readouterr().out
    assert "steps of this worker are not watched (agent: none)" in output
    assert "VLLM" not in output
    assert main(["explain", "--worker", "bare", "--config", file, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["watched"], answer["engine_timeout"]) == (False, None)


def test_another_engine_has_no_line_of_vllm_and_a_batch_too_large_is_remarked(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["explain", "--worker", "other", "--config", file, "--num-seqs"]
    assert main([*command, "5"]) == 0
    output = capsys.readouterr().out
    assert "VLLM" not in output
    assert "5 sequences are more than max_num_seqs of this worker, 4" in output
    assert main([*command, "4"]) == 0
    assert "note" not in capsys.readouterr().out


def test_a_backend_of_the_file_with_its_hard_cap(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["explain", "--backend", "npu", "--num-seqs", "9", "--num-tokens", "7"]
    assert main([*command, "--config", file]) == 0
    output = capsys.readouterr().out
    assert "9 seqs is beyond the last row 8: 8 s" in output
    assert "max(8 s + 10 s, hard_cap 300 s) = 300 s" in output


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--backend", "gpux", "--num-seqs", "1"], 2, "did you mean gpu?"),
        (["--backend", "gpu"], 2, "--backend needs --num-seqs"),
        (["--worker", "gemma"], 2, "--worker needs --config"),
        (["--worker", "gema", "--config", "FILE"], 4, "did you mean gemma?"),
        (["--worker", "gemma", "--config", "/nowhere"], 78, "cannot be opened"),
    ],
)
def test_what_cannot_be_explained_is_one_line(
    arguments: list[str], code: int, message: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [file if word == "FILE" else word for word in arguments]
    assert main(["explain", *words]) == code
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("number", ["0", "-1", "x", "1e3", "9" * 30, "\u0663"])
def test_counts_are_plain_numbers(number: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["explain", "--backend", "gpu", f"--num-seqs={number}"])
    assert caught.value.code == 2
    assert "is not a number from 1" in capsys.readouterr().err


def test_schema_and_reference_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out)["$schema"].endswith("2020-12/schema")
    assert main(["schema", "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("# Configuration reference")
