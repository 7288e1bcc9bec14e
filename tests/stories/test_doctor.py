"""`stepwarden doctor` beside a real daemon, and where there is none, nor a file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from stepwarden.errors import ExitCode
from support.crew import Crew, shell, stub

pytestmark = pytest.mark.timeout(120)


def asked(crew: Crew, *words: str) -> tuple[int, dict[str, Any]]:
    done = crew.cli("doctor", str(crew.config), "--json", *words)
    assert (done.stderr, bool(done.stdout)) == ("", True)
    return done.returncode, json.loads(done.stdout)


def found(document: dict[str, Any], check: str) -> list[tuple[str, str]]:
    rows = document["findings"]
    return [(row["level"], row["found"]) for row in rows if row["check"] == check]


def test_a_real_daemon_is_looked_at_and_its_faults_are_told() -> None:
    """Nothing is changed: afterwards every worker runs on as it did."""
    workers = {"w": stub(), "plain": shell("sleep 1000")}
    with Crew(workers) as crew:
        crew.ready()
        before = {name: worker.pid for name, worker in crew.status().items()}
        _, document = asked(crew)
        assert found(document, "daemon")[0] == ("ok", f"pid {crew.pid} answers")
        assert {level for level, _ in found(document, "sockets")} == {"ok"}
        assert found(document, "ports") == [("ok", "the daemon runs and has its addresses")]
        assert all(text.count("Traceback") == 0 for _, text in found(document, "environment"))
        admin = crew.directory / "run" / "admin.sock"
        admin.chmod(0o666)
        code, document = asked(crew, "--worker", "w")
        assert (code, document["level"]) == (ExitCode.NOT_WELL, "problem")
        assert any("mode 0666" in text for _, text in found(document, "sockets"))
        admin.chmod(0o600)
        told = crew.cli("doctor", str(crew.config), "--quiet")
        assert max(map(len, told.stdout.splitlines())) <= 90
        assert told.stdout.splitlines()[-1].endswith(" ok")
        assert {name: worker.pid for name, worker in crew.status().items()} == before
        done = crew.cli("doctor", str(crew.config), "--worker", "nobody")
        assert (done.returncode, done.stderr.count("\n")) == (ExitCode.UNKNOWN_WORKER, 1)


def test_a_frozen_daemon_is_a_problem_and_holds_up_nobody() -> None:
    with Crew({"plain": shell("sleep 1000")}) as crew:
        crew.ready()
        os.kill(crew.pid, signal.SIGSTOP)
        try:
            code, document = asked(crew)
        finally:
            os.kill(crew.pid, signal.SIGCONT)
        assert code == ExitCode.NOT_WELL
        (level, text) = found(document, "daemon")[0]
        assert level == "problem"
        assert text.startswith(f"pid {crew.pid} listens and does not answer")


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "stepwarden", "doctor", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_a_file_that_cannot_be_used_is_told_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    for text in (None, "workers: {w: {comand: [a]}}\n"):
        if text is not None:
            path.write_text(text)
        done = run(str(path))
        assert (done.returncode, done.stdout) == (ExitCode.CONFIG, "")
        assert "Traceback" not in done.stderr
        assert done.stderr.startswith(f"{path}:")
    assert run(str(tmp_path / "none.yaml")).stderr.count("\n") == 1


def test_without_a_daemon_the_host_and_the_file_are_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        f"supervisor: {{runtime_dir: {tmp_path}/run, state_dir: {tmp_path}/state,"
        " health: {listen: []}}\n"
        "workers:\n  g: {engine: vllm, backend: cpu, agent: optional, command: [/no/vllm]}\n"
    )
    done = run(str(path), "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["counts"]["problem"]) == (ExitCode.NOT_WELL, 2)
    assert found(document, "daemon")[0][0] == "unknown"
    assert not (tmp_path / "run").exists()
    told = run(str(path), "--engine-dead", "g")
    assert (told.returncode, told.stderr) == (0, "")
    assert "What to change, the best first:" in told.stdout
    assert json.loads(run(str(path), "--engine-dead", "g", "--json").stdout)["worker"] == "g"
