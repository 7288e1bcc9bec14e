"""O-YAML-1: a key written twice is an error with its path and both lines (check and start)."""

from __future__ import annotations

from pathlib import Path

import pytest
from stepwarden.cli.main import main
from stepwarden.config import ConfigError, load

CASES = {
    "top level": (
        "workers:\n  w1: {command: [a], backend: cpu}\nworkers:\n  w2: {command: [b]}\n",
        "workers",
        (1, 3),
    ),
    "worker name": (
        "workers:\n  w1: {command: [a], backend: cpu}\n"
        "  w2: {command: [b], backend: cpu}\n  w1: {command: [c]}\n",
        "workers.w1",
        (2, 4),
    ),
    "key inside a worker": (
        "workers:\n  w1:\n    command: [a]\n    backend: cpu\n    command: [b]\n",
        "workers.w1.command",
        (3, 5),
    ),
    "batch row": (
        "backends:\n  npu:\n    step:\n      rows:\n        8: 5\n        16: 9\n        8: 50\n"
        "workers: {w1: {command: [a], backend: npu}}\n",
        "backends.npu.step.rows.8",
        (5, 7),
    ),
    "one line": (
        "backends: {npu: {step: {rows: {8: 5, 16: 9, 8: 50}}}}\n"
        "workers: {w1: {command: [a], backend: npu}}\n",
        "backends.npu.step.rows.8",
        (1, 1),
    ),
    "quoted and not": (
        "workers:\n  w1: {command: [a], backend: cpu}\n  'w1': {command: [c]}\n",
        "workers.w1",
        (2, 3),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_o_yaml_1_duplicate_keys_are_named_with_path_and_both_lines(
    case: str, tmp_path: Path
) -> None:
    text, path, (first, again) = CASES[case]
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    (problem,) = caught.value.problems
    assert problem.path == path
    assert f"on line {first} and on line {again}" in problem.message
    assert problem.line == again


def test_o_yaml_1_check_and_start_refuse_with_the_config_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(CASES["worker name"][0])
    assert main(["check", str(file)]) == 78
    assert f"{file}:4:3: error: workers.w1: the key is written twice" in capsys.readouterr().out
    assert ConfigError.exit_code == 78


def test_o_yaml_1_duplicates_and_all_other_problems_are_told_at_once(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(
        "workers:\n  w1: {command: [a], backend: cpux}\n  w1: {command: [c]}\n"
        "  w2: {backend: cpu, shell: a, comand: [b], max_num_seqs: 1e3}\n"
    )
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    assert [p.path for p in caught.value.problems] == [
        "workers.w1.backend",
        "workers.w1",
        "workers.w2.comand",
        "workers.w2.max_num_seqs",
    ]
