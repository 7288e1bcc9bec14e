"""${NAME} in the texts of a worker: what it stands for, and what is said where it cannot."""

from __future__ import annotations

from pathlib import Path

import pytest
from stepwarden.config import ConfigError
from stepwarden.config.expand import VariableError, at_start, expand, missing_in_shell
from support.loading import errors, loaded


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", "plain"),
        ("${A}", "1"),
        ("x${A}y${B}z", "x1y${A}z"),
        ("$A ${EMPTY}.", "$A ."),
        ("$${A}", "${A}"),
        ("$$${A}", "$${A}"),
        ("$${", "${"),
        ("cost: $5", "cost: $5"),
    ],
)
def test_variables_are_replaced_once(text: str, expected: str) -> None:
    assert expand(text, {"A": "1", "B": "${A}", "EMPTY": ""}) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${A}${NONE}", "the variable NONE is not set"),
        ("${A:-b}", "is not a variable"),
        ("${}", "is not a variable"),
        ("${A", "is not a variable"),
        ("${1}", "is not a variable"),
    ],
)
def test_what_cannot_be_replaced_is_named(text: str, message: str) -> None:
    with pytest.raises(VariableError, match=message):
        expand(text, {"A": "1"})


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("serve ${A}", []),
        ("serve ${B} ${C} ${B}", ["B", "C"]),
        ("serve $B ${B:-x} ${B+y} ${#B} \\${B}", []),
        ("echo '${B}' \"${C}\"", ["C"]),
        ('echo "it\'s ${B}"', ["B"]),
        ("B=1; echo ${B}", []),
        ("export B=1 && echo ${B}", []),
        ("for B in 1 2; do echo ${B}; done", []),
        ("read -r B; echo ${B}", []),
        (": ${B:=1}; echo ${B}", []),
        (". /etc/engine.env && serve ${B}", []),
        ("set -a; source /etc/engine.env; serve ${B}", []),
        ("serve ./models ${B}", ["B"]),
        ("ABC=1; echo ${BC}", ["BC"]),
    ],
)
def test_a_shell_line_is_looked_through_and_left_alone(line: str, missing: list[str]) -> None:
    assert missing_in_shell(line, {"A": "1"}) == missing


def test_the_environment_is_layered(tmp_path: Path) -> None:
    secrets = tmp_path / "s.env"
    secrets.write_text("A=file\nB=file\nC=file\n")
    secrets.chmod(0o600)
    text = """\
workers:
  w:
    backend: cpu
    env_file: ["${DIR}/s.env"]
    env: {A: env, D: "${B} ${X}"}
    command: [a, "${A} ${B} ${C} ${D} ${X}"]
    cwd: ${DIR}
"""
    worker = loaded(text, {"DIR": str(tmp_path), "X": "daemon", "A": "daemon"}).workers["w"]
    assert worker.command == ("a", "env file file file daemon daemon")
    assert worker.env == {"A": "env", "D": "file daemon"}
    assert worker.cwd == str(tmp_path)
    environment = worker.environment({"A": "daemon", "B": "daemon", "X": "daemon"})
    assert environment == {"A": "env", "B": "file", "C": "file", "D": "file daemon", "X": "daemon"}
    assert "file" not in repr(worker.file_env.keys())
    assert "C='file'" not in repr(worker)


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("command: [a, '${NONE}']", "workers.w.command[1]"),
        ("command: [a], env: {A: '${NONE}'}", "workers.w.env.A"),
        ("command: [a], cwd: '${NONE}/x'", "workers.w.cwd"),
        ("command: [a], env_file: '${NONE}/x'", "workers.w.env_file"),
        ("command: [a], env_file: ['${NONE}/x']", "workers.w.env_file[0]"),
        ("command: [a], output: {mode: append, path: '${NONE}/x'}", "workers.w.output.path"),
        ("command: [a], pre_start: {command: [a, '${NONE}']}", "workers.w.pre_start.command[1]"),
        ("command: [a], stop: {command: ['${NONE}']}", "workers.w.stop.command[0]"),
        ("command: [a], ready: {command: [a, '${NONE}']}", "workers.w.ready.command[1]"),
        ("command: [a], release: {command: [a, '${NONE}']}", "workers.w.release.command[1]"),
        ("unit: 'a@${NONE}.service'", "workers.w.unit"),
        ("shell: 'a ${NONE}'", "workers.w.shell"),
    ],
)
def test_an_unset_variable_is_named_with_its_place(written: str, path: str) -> None:
    found = errors(f"workers: {{w: {{backend: cpu, {written}}}}}")
    assert list(found) == [path]
    assert "the variable NONE is not set" in found[path]


def test_in_the_defaults_a_variable_is_told_of_once() -> None:
    text = "defaults: {env_file: '${NONE}/x'}\nworkers: {v: {command: [a]}, w: {command: [a]}}"
    assert list(errors(text)) == ["defaults.env_file"]


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("command: ['${EMPTY}']", "workers.w.command[0]"),
        ("command: [a], cwd: '${HERE}/x'", "workers.w.cwd"),
        ("unit: 'a${SPACE}b.service'", "workers.w.unit"),
    ],
)
def test_what_comes_out_is_checked_too(written: str, path: str) -> None:
    environment = {"EMPTY": "", "HERE": "here", "SPACE": " "}
    found = errors(f"workers: {{w: {{backend: cpu, {written}}}}}", environment)
    assert "comes out" in found[path]


def test_at_each_start_files_are_read_and_texts_replaced_anew(tmp_path: Path) -> None:
    secrets = tmp_path / "s.env"
    secrets.write_text("TOKEN=old\n")
    text = f"workers: {{w: {{env_file: {secrets}, command: [a, '${{TOKEN}}', '${{X}}']}}}}"
    worker = loaded(text, {"X": "1"}).workers["w"]
    assert worker.command == ("a", "old", "1")
    secrets.write_text("TOKEN=new\n")
    fresh = at_start(worker, {"X": "2"})
    assert fresh.command == ("a", "new", "2")
    assert fresh.environment({})["TOKEN"] == "new"
    with pytest.raises(ConfigError, match=r"workers\.w\.command\[2\]: the variable X is not set"):
        at_start(worker, {})
    secrets.unlink()
    with pytest.raises(ConfigError, match="cannot be opened"):
        at_start(worker, {"X": "2"})
