"""`calibrate` and the learned part of `explain`, from a state directory without a daemon."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from stepwarden.cli.main import main
from stepwarden.config import Config, load
from stepwarden.config.loader import load_text
from stepwarden.core.subject import Subject
from stepwarden.core.usual import Row, Usual
from stepwarden.edge.learned_text import key_of, to_text
from stepwarden.errors import ExitCode
from support.state import durable, open_store

FILE = """\
supervisor: {{runtime_dir: {0}/run, state_dir: {0}/state}}
workers:
  gemma: {{backend: cpu, engine: vllm, max_num_seqs: 64, command: [vllm, serve, gemma]}}
  other: {{backend: cpu, max_num_seqs: 8, command: [a], learn: "on"}}
  bare: {{agent: none, command: [a]}}
"""


def usual(**means: float) -> Usual:
    """`t3=1.5`: row 3, for up to 8 tokens."""
    found: list[Row | None] = [None] * 18
    for name, mean in means.items():
        found[int(name[1:])] = Row(mean, 40)
    return Usual(tuple(found), 1.5)


def learned(home: Path, *tables: tuple[str, str, str, Usual]) -> str:
    """A state directory that holds these (worker, rank, model, table), and its file."""
    path = home / "f.yaml"
    path.write_text(FILE.format(home))
    with open_store(home) as store:
        for worker, rank, model, table in tables:
            key = key_of(Subject(worker, rank, model, "vllm", "0.33", "bf16", "cpu", "0-3"))
            store.note_learned(key, worker, to_text(table))
        assert durable(store)
    return str(path)


@pytest.fixture
def file(tmp_path: Path) -> str:
    return learned(
        tmp_path,
        ("gemma", "rank0", "old", usual(t3=900.0)),
        ("gemma", "rank0", "gemma", usual(t0=0.5, t3=4.0, t11=20.0)),
        ("other", "rank0", "x", usual(t2=1.0)),
        ("removed", "rank0", "x", usual(t2=1.0)),
    )


def merged(file: str, fragment: str) -> Config:
    """The file with what `calibrate` printed merged into it, as `check` reads it."""
    tree = yaml.safe_load(Path(file).read_text())
    for name, section in yaml.safe_load(fragment)["workers"].items():
        tree["workers"][name].update(section)
    return load_text(yaml.safe_dump(tree), Path(file), {})


@pytest.mark.parametrize("form", [(), ("--rows",)])
def test_what_it_prints_is_accepted_by_check_and_covers_what_was_seen(
    file: str, form: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", "--config", file, *form]) == 0
    output = capsys.readouterr().out
    assert "#   5 to 8 tokens: usual 4 s of 40 steps; budget" in output
    assert "removed" not in output
    config = merged(file, output)
    step = config.workers["gemma"].policy.step
    for tokens, seconds in ((1, 0.5), (5, 4.0), (8, 4.0), (1025, 20.0), (2048, 20.0)):
        assert step.budget(1, tokens).seconds >= 5 * seconds
    assert step.budget(1, 1).seconds >= 10.0


def test_the_whole_file_is_one_that_check_accepts(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", "--config", file, "--whole"]) == 0
    whole = tmp_path / "new.yaml"
    whole.write_text(capsys.readouterr().out)
    assert main(["check", str(whole)]) == 0
    before, after = load(Path(file)), load(whole)
    assert list(after.workers) == list(before.workers)
    assert after.workers["bare"].policy == before.workers["bare"].policy
    assert after.workers["gemma"].policy.step.budget(1, 2048).seconds < 200.0


def test_one_worker_and_another_factor(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "other", "--factor", "20", "--config", file]) == 0
    output = capsys.readouterr().out
    assert list(yaml.safe_load(output)["workers"]) == ["other"]
    assert merged(file, output).workers["other"].policy.step.budget(1, 4).seconds == 20.0
    assert "Budgets of 20 times what is usual, from 40 steps" in output


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["nobody"], ExitCode.UNKNOWN_WORKER, "nobody"),
        (["bare"], ExitCode.ACTION_FAILED, "nothing has been learned yet of bare"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(
    file: str,
    arguments: list[str],
    code: ExitCode,
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["calibrate", *arguments, "--config", file]) == code
    shown = capsys.readouterr()
    assert words in shown.err
    assert len(shown.err.splitlines()) == 1
    assert shown.out == ""


def test_without_a_daemon_or_a_state_it_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(FILE.format(tmp_path))
    assert main(["calibrate", "--config", str(path)]) == ExitCode.UNREACHABLE
    assert "there is no state in" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--rows", "--whole"])
def test_what_needs_the_file_says_so(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", option]) == ExitCode.USAGE
    assert "need --config" in capsys.readouterr().err


@pytest.mark.parametrize("factor", ["0", "0.5", "101", "nan", "many"])
def test_a_factor_that_makes_no_sense_is_refused(
    factor: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["calibrate", "--factor", factor])
    assert "is not a number from 1 to 100" in capsys.readouterr().err


def test_explain_shows_the_arithmetic_of_what_was_learned(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["explain", "--config", file, "--worker", "gemma", "--num-seqs", "8"]
    assert main([*command, "--num-tokens", "8"]) == 0
    output = capsys.readouterr().out
    assert "300 s + 1 s * 8 seqs = 308 s" in output
    assert "learned   30 s   rank0 of the state in" in output
    assert "gemma, vllm 0.33, bf16, cpu, CPUs 0-3" in output
    assert "5 * usual 4 s of 40 steps up to 8 tokens * 1.5 (slow of late) = 30 s" in output
    assert "not working, dead at 60 s; working, at 120 s" in output
    assert "learn: observe" in output


def test_explain_as_json_and_for_one_that_judges(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", "--config", file, "--worker", "other", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["learn"] == "on"
    (one,) = answer["learned"]
    assert one["compared_by_tokens"] == 8
    assert (one["rank"], one["alarm_seconds"]) == ("rank0", 308.0)
    assert one["arithmetic"].startswith("young, so as configured")


def test_explain_without_anything_learned_is_as_ever(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = learned(tmp_path)
    assert main(["explain", "--config", path, "--worker", "gemma"]) == 0
    assert "learned" not in capsys.readouterr().out
