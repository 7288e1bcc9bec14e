"""O-YAML-3: unknown and misspelt keys are errors at every level, with path and suggestion."""

from __future__ import annotations

from pathlib import Path

import pytest
from stepwarden.cli.main import main
from stepwarden.config import ConfigError
from stepwarden.config.loader import load_text

GOOD = "workers:\n  w1:\n    backend: cpu\n    command: [a]\n"

# what is written: (path, suggestion)
CASES = {
    GOOD + "    step_budgt: 5\n": ("workers.w1.step_budgt", "step"),
    GOOD + "    step: {bases: 5}\n": ("workers.w1.step.bases", "base"),
    GOOD + "    stop: {graze: 5}\n": ("workers.w1.stop.graze", "grace"),
    GOOD + "    window: 5\n": ("workers.w1.window", "workers.NAME.retry.window"),
    GOOD + "    Command: [a]\n": ("workers.w1.Command", "command"),
    GOOD + "    x-note: hi\n": ("workers.w1.x-note", ""),
    GOOD + "default: {agent: none}\n": ("default", "defaults"),
    GOOD + "Defaults: {agent: none}\n": ("Defaults", "defaults"),
    GOOD + "heartbeat: {timeout: 5}\n": ("heartbeat", "workers.NAME.heartbeat"),
    GOOD + "defaults: {retry: {windw: 5}}\n": ("defaults.retry.windw", "window"),
    GOOD + "defaults: {retries: {window: 5}}\n": ("defaults.retries", "retry"),
    GOOD + "supervisor: {run_dir: /run/x}\n": ("supervisor.run_dir", "runtime_dir"),
    GOOD + 'supervisor: {metric: {listen: "127.0.0.1:9464"}}\n': ("supervisor.metric", "metrics"),
    GOOD + 'supervisor: {health: {listne: ["127.0.0.1:1"]}}\n': (
        "supervisor.health.listne",
        "listen",
    ),
    GOOD + "backends: {cpu: {steps: {base: 5}}}\n": ("backends.cpu.steps", "step"),
    GOOD + "backends: {cpu: {base: 5}}\n": ("backends.cpu.base", "backends.NAME.step.base"),
}


@pytest.mark.parametrize("text", CASES)
def test_o_yaml_3_unknown_keys_are_refused_with_path_and_suggestion(text: str) -> None:
    path, suggestion = CASES[text]
    with pytest.raises(ConfigError) as caught:
        load_text(text, Path("c.yaml"), {})
    (problem,) = caught.value.problems
    assert (problem.path, problem.message) == (path, "unknown key")
    assert problem.suggestion == suggestion
    assert problem.accepted
    assert problem.line is not None


@pytest.mark.parametrize("value", ["5", "{a: 5}", "[5]", ""])
def test_o_yaml_3_an_unknown_key_is_reported_where_it_stands(value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(f"{GOOD}    windw: {value}\n", Path("c.yaml"), {})
    assert [(p.line, p.column) for p in caught.value.problems] == [(5, 5)]


def test_o_yaml_3_worker_for_workers_never_starts_as_a_file_without_workers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("worker:\n  w1: {command: [a]}\n")
    assert main(["check", str(file)]) == 78
    output = capsys.readouterr().out
    assert "worker: unknown key" in output
    assert "did you mean workers?" in output
    assert "the key workers is missing" in output


def test_a_command_in_one_line_is_pointed_to_the_shell() -> None:
    with pytest.raises(ConfigError) as caught:
        load_text("workers: {w: {backend: cpu, command: sleep 1}}", Path("c.yaml"), {})
    (problem,) = caught.value.problems
    assert "command: text stands here (did you mean shell? accepted: a list" in str(problem)


def test_o_yaml_3_extension_keys_are_ignored_at_the_top_level_only() -> None:
    text = "x-note: hi\nx-env: &e {A: b}\n" + GOOD + "    env: {<<: *e, C: d}\n"
    assert load_text(text, Path("c.yaml"), {}).workers["w1"].env == {"A": "b", "C": "d"}


@pytest.mark.parametrize("text", ["workers: {}\n", "workers:\n", "workers: []\n", "supervisor: {}"])
def test_a_file_without_workers_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="workers"):
        load_text(text, Path("c.yaml"), {})
