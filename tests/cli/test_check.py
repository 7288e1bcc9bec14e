from __future__ import annotations

import json
from pathlib import Path

import pytest
from stepwarden.cli.main import main
from stepwarden.config import load

GOOD = "workers:\n  w1: {command: [a], backend: cpu}\n"
WARNED = "workers:\n  w1: {command: [a], backend: cpu, heartbeat: {timeout: 2s}}\n"
BAD = "workers:\n  w1: {comand: [a], backend: cpu, stop: {grace: 1:30}}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.yaml"


def test_a_good_file(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(GOOD)
    assert main(["check", str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: can be used: 1 worker, 0 errors, 0 warnings\n"


def test_problems_are_lines_with_place_path_and_what_is_accepted(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(BAD)
    assert main(["check", str(file)]) == 78
    first, second, summary = capsys.readouterr().out.splitlines()
    told, accepted = first.split(" accepted: ")
    assert told == f"{file}:2:8: error: workers.w1.comand: unknown key (did you mean command?"
    assert accepted.startswith("agent, ")
    assert second.startswith(f'{file}:2:49: error: workers.w1.stop.grace: "1:30" is not a duration')
    assert "accepted: 30s, 500ms, 5m, 1h30m or plain seconds" in second
    assert summary == f"{file}: cannot be used: 2 errors, 0 warnings"


def test_warnings_count_only_with_strict(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(WARNED)
    assert main(["check", str(file)]) == 0
    assert "warning: workers.w1.heartbeat: timeout 2s" in capsys.readouterr().out
    assert main(["check", "--strict", str(file)]) == 78
    assert "cannot be used with --strict" in capsys.readouterr().out


def test_json(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(BAD)
    assert main(["check", "--json", str(file)]) == 78
    answer = json.loads(capsys.readouterr().out)
    assert answer["ok"] is False
    assert answer["problems"][0]["path"] == "workers.w1.comand"
    assert answer["problems"][0]["did_you_mean"] == "command"
    assert (answer["problems"][0]["line"], answer["problems"][0]["column"]) == (2, 8)
    file.write_text(GOOD)
    assert main(["check", "--json", "--effective", str(file)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["effective"]["workers"]["w1"]["startup"]["budget"] == 600.0


def test_effective_is_a_file_that_says_the_same(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(
        "workers:\n  w1:\n    command: [a, 'on', '1e3', \"\\u00e9\\n\", '']\n    backend: cpu\n"
        "    env: {A: '010', B: 'no', C: \"x: y\"}\n    step: {per_token: 0.01ms}\n"
    )
    assert main(["check", "--effective", str(file)]) == 0
    output = capsys.readouterr()
    assert "can be used" in output.err
    again = tmp_path / "again.yaml"
    again.write_text(output.out)
    assert load(again, {}).workers == load(file, {}).workers


def test_run_tells_a_bad_file_in_the_words_of_check(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(BAD)
    assert main(["check", str(file)]) == 78
    checked = capsys.readouterr().out
    assert main(["run", str(file)]) == 78
    assert capsys.readouterr() == ("", checked)
    missing = str(file.parent / "none")
    assert main(["run", missing]) == 78
    assert capsys.readouterr().err.splitlines() == [
        f"{missing}: error: cannot be opened: No such file or directory",
        f"{missing}: cannot be used: 1 error, 0 warnings",
    ]
    assert main(["explain", "--worker", "w1", "--config", str(file)]) == 78
    assert capsys.readouterr().err == "".join(checked.splitlines(keepends=True)[:-1])


def test_a_missing_program_is_a_warning(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(GOOD.replace("[a]", f"[{file}/a]"))
    assert main(["check", str(file)]) == 0
    assert "does not exist on this host" in capsys.readouterr().out


def test_a_missing_file_is_one_line(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(file)]) == 78
    output = capsys.readouterr().out
    assert f"{file}: error: cannot be opened: No such file or directory" in output


def test_a_unit_is_asked_about_where_systemd_runs(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text("workers:\n  w1: {unit: a.service, backend: cpu}\n")
    monkeypatch.setattr("stepwarden.edge.systemd_bus.BOOTED", tmp_path / "none")
    assert main(["check", str(file)]) == 0
    warning, _ = capsys.readouterr().out.splitlines()
    assert warning.endswith("its Restart= is no: systemd does not run this host")
    monkeypatch.setattr("stepwarden.edge.systemd_bus.BOOTED", tmp_path)
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/no-bus")
    assert main(["check", str(file)]) == 0
    warning, _ = capsys.readouterr().out.splitlines()
    assert "could not be checked" in warning
    assert "does not run" not in warning
