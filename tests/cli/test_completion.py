"""Completion of command lines: what may come next, and the shells' parts in the real shells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from stepwarden.cli.completion import FILES, SHELLS, candidates
from stepwarden.cli.main import COMMANDS
from support.admin_process import admin_process


@pytest.fixture(scope="module")
def served() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sw-") as directory:
        path = Path(directory) / "a.sock"
        with admin_process(path):
            yield path


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sta", ["status", "start"]),
        ("--ver", ["--version"]),
        ("status --unw", ["--unwell"]),
        ("events --kind tra", ["transition"]),
        ("events --since ", []),
        ("check ", [FILES]),
        ("status --config ", [FILES]),
        ("completion ", list(SHELLS)),
        ("help ex", ["explain"]),
        ("status --socket /nowhere.sock ", []),
        ("nonsense ", [*COMMANDS, "--help", "--version"]),
    ],
)
def test_what_may_come_next(line: str, expected: list[str]) -> None:
    assert candidates(line.split(" ")) == expected


def test_names_of_workers_come_from_the_daemon(
    served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert candidates(["stop", "--socket", str(served), "gem"]) == ["gemma-cpu"]
    monkeypatch.setenv("STEPWARDEN_SOCKET", str(served))
    assert candidates(["status", ""]) == ["gemma-cpu", "llama-gpu"]
    assert candidates(["events", "--worker", "ll"]) == ["llama-gpu"]


def test_names_that_a_shell_would_split_or_obey_are_left_out(tmp_path: Path) -> None:
    with admin_process(tmp_path / "a.sock", "odd"):
        found = candidates(["stop", "--socket", str(tmp_path / "a.sock"), ""])
    assert all(name.isprintable() and " " not in name for name in found)


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_completes_its_options(command: str) -> None:
    found = candidates([command, "--"])
    assert "--help" in found
    assert all(word.startswith("--") for word in found)


@pytest.fixture
def environment(served: Path, tmp_path: Path) -> dict[str, str]:
    """A `stepwarden` on the path, and the daemon it asks."""
    program = tmp_path / "bin" / "stepwarden"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m stepwarden "$@"\n')
    program.chmod(0o755)
    paths = [os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(":") if p]
    return {
        **os.environ,
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHONPATH": ":".join(paths),
        "STEPWARDEN_SOCKET": str(served),
    }


def shell(environment: dict[str, str], name: str, script: str, cwd: Path) -> list[str]:
    done = subprocess.run(
        [name, "-c", script],
        env=environment,
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_bash_completes(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "config.yaml").touch()
    script = (
        'eval "$(stepwarden completion bash)"\n'
        "tab() {{ COMP_WORDS=(stepwarden {0}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1));"
        ' _stepwarden stepwarden; printf "%s\\n" "${{COMPREPLY[@]}}"; }}; tab'
    )
    for line, expected in (
        ("ev", ["events"]),
        ("stop gem", ["gemma-cpu"]),
        ("check con", ["config.yaml"]),
        ("status --chec", ["--check"]),
    ):
        assert shell(environment, "bash", script.format(line), tmp_path) == expected


_ZSH = """
compdef() { :; }
compadd() { shift; print -l -- "$@"; }
_files() { print files; }
source ./part
words=(stepwarden stop gem) CURRENT=3; _stepwarden
words=(stepwarden check c) CURRENT=3; _stepwarden
words=(stepwarden status --chec) CURRENT=3; _stepwarden
words=(stepwarden nothing-of-this) CURRENT=2; _stepwarden
"""


def need(name: str) -> None:
    missing = shutil.which(name) is None
    if missing and "STEPWARDEN_TEST_TOOLS" not in os.environ:
        pytest.skip(f"there is no {name} here")


def test_zsh_completes(environment: dict[str, str], tmp_path: Path) -> None:
    need("zsh")
    (tmp_path / "part").write_text(SHELLS["zsh"])
    assert shell(environment, "zsh", _ZSH, tmp_path) == ["gemma-cpu", "files", "--check"]


def test_fish_completes(environment: dict[str, str], tmp_path: Path) -> None:
    need("fish")
    (tmp_path / "part").write_text(SHELLS["fish"])
    (tmp_path / "config.yaml").touch()
    environment["HOME"] = str(tmp_path)
    for line, expected in (("stop gem", "gemma-cpu"), ("check con", "config.yaml")):
        script = f"source part; complete -C 'stepwarden {line}'"
        assert shell(environment, "fish", script, tmp_path) == [expected]
