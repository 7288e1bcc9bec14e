from __future__ import annotations

import sys
from pathlib import Path

import pytest
from stepwarden.config import ConfigError
from stepwarden.config.loader import load_text

W = "workers:\n  w:\n    command: [a]\n    backend: cpu\n"


def warnings(text: str, environment: dict[str, str] | None = None) -> dict[str, str]:
    """What is warned about, by path."""
    config = load_text(text, Path("c.yaml"), environment or {})
    return {problem.path: problem.message for problem in config.warnings}


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        (W + "    restart: {within: 10m}\n", "workers.w.restart", "5 hangs at start take longer"),
        ("defaults: {restart: {limit: 50}}\n" + W, "defaults.restart", "50 hangs at start"),
        (W + "    startup: {budget: 1h}\n", "workers.w", "hangs at start take longer"),
        (W + "    restart: {delay: 10m, limit: 1, within: 1h}\n", "workers.w.restart", "max_delay"),
        (W + "    heartbeat: {timeout: 2s}\n", "workers.w.heartbeat", "less than 3 intervals"),
        (W + "    step: {hard_cap: 5s}\n", "workers.w.step.hard_cap", "below budget + window"),
        (W + "    startup: {hard_cap: 5s}\n", "workers.w.startup.hard_cap", "630s holds instead"),
        (W + "    heartbeat: {hard_cap: 5s}\n", "workers.w.heartbeat.hard_cap", "1m holds instead"),
        (W + "    step: {base: 2h}\n", "workers.w.step", "2h is above max; 30m holds"),
        (
            W + "    step: {rows: {1: 5s, 64: 40s}}\n    max_num_seqs: 65\n",
            "workers.w.max_num_seqs",
            "beyond the last row 64 get its budget, 40s",
        ),
        ("workers: {w: {command: [a]}}", "workers.w", "no backend is named; the budgets of gpu"),
        (
            "workers: {w: {backend: cpu, command: [a, --max-num-seqs=8]}}",
            "workers.w.max_num_seqs",
            "is 256, and the command says 8",
        ),
        (
            'supervisor: {agents: {listen: ["0.0.0.0:50052"], insecure: true}}\n' + W,
            "supervisor.agents.listen[0]",
            "tokens of workers travel as plain text",
        ),
        (
            "supervisor: {agents: {tls: {cert: /c, key: /k}}}\n" + W,
            "supervisor.agents.tls",
            "protects nothing",
        ),
        ('supervisor: {socket_mode: "0666"}\n' + W, "supervisor.socket_mode", "every user"),
    ],
)
def test_what_is_hardly_meant_is_a_warning(text: str, path: str, message: str) -> None:
    found = warnings(text)
    assert message in found[path], found
    assert len(found) == 1


def test_a_count_as_shipped_with_shorter_lives_is_no_warning() -> None:
    assert warnings(W + "    restart: {delay: 1s, max_delay: 10s}\n") == {}
    assert warnings(W + "    startup: {budget: 9m}\n    retry: {window: 5s}\n") == {}


def test_an_unwatched_worker_needs_no_backend() -> None:
    assert warnings("workers: {w: {command: [a], agent: none}}") == {}


def test_paths_that_are_not_on_this_host_are_warnings_where_asked_for(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.touch()
    cases = {
        f"command: [{tmp_path}/none]": ("command[0]", "does not exist on this host"),
        f"command: [{plain}/below]": ("command[0]", "does not exist on this host"),
        f"command: [{tmp_path}]": ("command[0]", "is a directory, not a program, on this host"),
        f"command: [{plain}]": ("command[0]", "is a file that nobody may execute on this host"),
        f"command: [a], cwd: {tmp_path}/none": ("cwd", "does not exist on this host"),
        f"command: [a], cwd: {plain}": ("cwd", "is not a directory on this host"),
    }
    for written, (key, message) in cases.items():
        text = f"workers: {{w: {{backend: cpu, {written}}}}}"
        (found,) = load_text(text, Path("c"), {}, on_this_host=True).warnings
        assert found.path == f"workers.w.{key}"
        assert found.message.endswith(message)
        assert load_text(text, Path("c"), {}).warnings == ()
    good = f"workers: {{w: {{backend: cpu, cwd: {tmp_path}, command: [{sys.executable}, none]}}}}"
    assert load_text(good, Path("c"), {}, on_this_host=True).warnings == ()


def test_shipped_values_give_no_warning() -> None:
    assert warnings(W) == {}


def test_a_warning_about_the_defaults_is_given_once() -> None:
    many = "".join(f"  w{n}: {{command: [a], backend: cpu}}\n" for n in range(20))
    config = load_text(f"defaults: {{heartbeat: {{timeout: 1s}}}}\nworkers:\n{many}", Path("c"), {})
    assert [problem.path for problem in config.warnings] == ["defaults.heartbeat"]


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("workers: {w: {backend: cpux, command: [a]}}", "workers.w.backend", "there is no backend"),
        ("workers: {w: {backend: cpu}}", "workers.w", "command, shell, unit or attach is missing"),
        ("workers: {w: {backend: cpu, command: []}}", "workers.w.command", "names no program"),
        (W + "    shell: b\n", "workers.w", "command and shell are both written"),
        (W + "    output: {mode: append}\n", "workers.w.output", "needs a path"),
        (W + "    output: {path: /x}\n", "workers.w.output", "takes no path"),
        (W + "    cwd: here\n", "workers.w.cwd", "cannot be used here"),
        (W + "    step: {rows: {1: 5s, 2: 4s}}\n", "workers.w.step.rows.2", "smaller budget"),
        (W + "    step: {rows: {1: 5s}, beyond: 4s}\n", "workers.w.step.beyond", "below the last"),
        (W + "    step: {rows: {}}\n", "workers.w.step.rows", "is empty"),
        (
            W + "    step: {rows: {1: 5s}, base: 4s}\n",
            "workers.w.step",
            "base belongs to a formula",
        ),
        (W + "    step: {beyond: 4s}\n", "workers.w.step.beyond", "goes with rows"),
        ("backends: {x: {}}\n" + W, "backends.x.step", "says no budget"),
        (
            f"supervisor: {{runtime_dir: /{'x' * 100}}}\n" + W,
            "supervisor.runtime_dir",
            "would have 112 bytes",
        ),
        (
            "supervisor: {agent_socket: /a, admin_socket: /a}\n" + W,
            "supervisor.admin_socket",
            "the same file",
        ),
        (
            'supervisor: {agents: {listen: ["127.0.0.1:50051"]}}\n' + W,
            "supervisor.health.listen[0]",
            "written twice",
        ),
        ("supervisor: {socket_mode: 0600}\n" + W, "supervisor.socket_mode", "write it in quotes"),
    ],
)
def test_what_cannot_work_is_an_error(text: str, path: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_text(text, Path("c.yaml"), {})
    found = {p.path: p.message for p in caught.value.problems if p.severity == "error"}
    assert len(found) == 1
    assert message in found[path], found


def test_a_socket_path_of_exactly_the_limit_is_taken() -> None:
    path = "/" + "x" * 106
    config = load_text(f"supervisor: {{agent_socket: {path}}}\n{W}", Path("c"), {})
    assert len(str(config.supervisor.agent_socket)) == 107
