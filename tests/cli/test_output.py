"""A standard output or error that cannot be written: one line and an exit code, no traceback."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from stepwarden.cli.main import COMMANDS
from support.admin_process import admin_process

GOOD = "workers:\n  w1: {command: [a], backend: cpu}\n"


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sw-") as name:
        (Path(name) / "good.yaml").write_text(GOOD)
        (Path(name) / "steps.csv").write_text("begin,seconds\n0,0.5\n")
        with admin_process(Path(name) / "admin.sock"):
            yield Path(name)


COMMAND_LINES = {
    "--help": ["--help"],
    "--version": ["--version"],
    "check": ["check", "good.yaml"],
    "check --json": ["check", "good.yaml", "--json"],
    "check --effective": ["check", "good.yaml", "--effective"],
    "explain": ["explain", "--backend", "cpu", "--num-seqs", "1"],
    "calibrate": ["calibrate", "--help"],
    "incidents": ["incidents", "--help"],
    "replay": ["replay", "steps.csv", "--backend", "cpu"],
    "doctor": ["doctor", "good.yaml", "--engine-dead", "w1"],
    "schema": ["schema"],
    "schema --markdown": ["schema", "--markdown"],
    "status": ["status"],
    "status --json": ["status", "--json"],
    "status NAME": ["status", "gemma-cpu"],
    "status NAME --json": ["status", "gemma-cpu", "--json"],
    "events --json": ["events", "--json"],
    "events": ["events"],
    "events --follow": ["events", "--follow"],
    "ledger": ["ledger"],
    "completion": ["completion", "bash"],
    "help": ["help"],
    "help --man": ["help", "--man"],
    "top --help": ["top", "--help"],
    "start": ["start", "gemma-cpu", "--no-wait"],
    "stop": ["stop", "gemma-cpu", "--no-wait"],
    "restart": ["restart", "gemma-cpu", "--no-wait"],
    "install": ["install", "--dry-run", "--root", "nowhere"],
    "reload": ["reload"],
    "run --help": ["run", "--help"],
}


def call(directory: Path, words: list[str], redirection: str) -> tuple[int, str]:
    """Run a command line with a redirection of the shell; its exit code and its other output."""
    paths = [os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(":") if p]
    socket = str(directory / "admin.sock")
    shell = ["/bin/sh", "-c", f'exec "$@" {redirection}', "sh"]
    done = subprocess.run(
        [*shell, sys.executable, "-m", "stepwarden", *words],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": ":".join(paths), "STEPWARDEN_SOCKET": socket},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_every_command_is_tried() -> None:
    assert {words[0] for words in COMMAND_LINES.values()} >= set(COMMANDS)


@pytest.mark.parametrize("words", COMMAND_LINES.values(), ids=COMMAND_LINES)
def test_a_full_disk_behind_the_output_is_one_line(directory: Path, words: list[str]) -> None:
    code, error = call(directory, words, ">/dev/full")
    *before, last = error.splitlines()
    assert (code, last) == (1, "stepwarden: cannot write the output: No space left on device")
    # --effective tells what was found on standard error.
    assert len(before) == ("--effective" in words)


@pytest.mark.parametrize("words", COMMAND_LINES.values(), ids=COMMAND_LINES)
def test_a_reader_that_has_gone_is_no_error(directory: Path, words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    paths = [os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(":") if p]
    socket = str(directory / "admin.sock")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "stepwarden", *words],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": ":".join(paths), "STEPWARDEN_SOCKET": socket},
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writing)
    told = done.stderr.splitlines()
    # --effective tells what was found on standard error.
    assert (done.returncode, len(told)) == (0, int("--effective" in words))


@pytest.mark.parametrize("words", [["schema"], ["check", "good.yaml", "--effective"], ["--help"]])
def test_a_closed_output_is_one_line(directory: Path, words: list[str]) -> None:
    code, error = call(directory, words, ">&-")
    assert code == 1
    assert error.splitlines()[-1] == (
        "stepwarden: cannot write the output: standard output is closed"
    )
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["status", "--socket", "/nowhere"], 3),
        (["check", "nowhere.yaml"], 78),
        (["run", "nowhere.yaml"], 78),
        (["status", "--timeout", "x"], 2),
        (["explain", "--worker", "w"], 2),
    ],
)
@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])
def test_an_error_that_nobody_can_read_keeps_its_code(
    directory: Path, words: list[str], code: int, redirection: str
) -> None:
    assert call(directory, words, redirection)[0] == code


def test_a_terminal_of_ascii_gets_escapes_for_the_rest(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (directory / "caf\u00e9.yaml").write_text(GOOD)
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    code, told = call(directory, ["check", "caf\u00e9.yaml"], "")
    assert (code, told.splitlines()[-1].split(":")[0]) == (0, "caf\\xe9.yaml")
