"""`stepwarden replay` on recordings and on step traces of others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from stepwarden.cli.main import main
from stepwarden.clock import SystemClock
from stepwarden.core.commands import command
from stepwarden.core.worker import WorkerState
from stepwarden.edge.recording import Came, Recording

HEADER = "begin,seconds,num_seqs,num_tokens,cpu_percent\n"
FILE = """\
backends: {quick: {step: {base: 1s, per_seq: 0s, max: 60s}}}
defaults: {retry: {window: 5s}, agent: optional}
workers:
  one: {backend: quick, command: [sleep, "1"]}
"""


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "stepwarden.yaml"
    file.write_text(FILE)
    return str(file)


def trace(directory: Path, *rows: str, header: str = HEADER) -> str:
    file = directory / "steps.csv"
    file.write_text(header + "".join(f"{row}\n" for row in rows))
    return str(file)


def test_a_trace_of_healthy_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = trace(tmp_path, "0,0.5,8,64,90", "1,20,8,64,90")
    assert main(["replay", file, "--backend", "cpu"]) == 0
    told = capsys.readouterr().out
    assert told == "2 steps by the rules of backend cpu: 0 alarms, 0 deaths, 0 restarts\n"


def test_a_trace_with_a_slow_and_a_hung_step(
    tmp_path: Path, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The slow one computes for 3 s, the hung one never ends and does nothing."""
    rows = ("100,0.1,8,64,90", "101,3,8,64,90", "111,,8,64,0", "151,0.1,8,64,90")
    file = trace(tmp_path, *rows)
    assert main(["replay", file, "--config", config, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["steps"] == 4
    found = [(mark["sort"], mark["life"], round(mark["at"])) for mark in told["replayed"]]
    assert found == [("alarm", "1", 2), ("alarm", "1", 12), ("death", "1", 17)]


def test_other_names_of_columns_are_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = "model,step,t_begin,batch,tokens,seconds\n"
    file = trace(tmp_path, "m,1,5.0,1,64,400.0", header=header)
    assert main(["replay", file, "--backend", "cpu"]) == 0
    assert "1 alarm, 0 deaths" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("rows", "header", "says"),
    [
        ((), HEADER, "there is no step in it"),
        (("0,x,1,1,1",), HEADER, "line 2: seconds is 'x', not a finite number"),
        (("0,1,1,1,1", "0,-1,1,1,1"), HEADER, "line 3: seconds is '-1'"),
        (("nan,1,1,1,1",), HEADER, "line 2: begin is 'nan'"),
        ((",1,1,1,1",), HEADER, "line 2: begin is empty"),
        (("1,1",), "t_begin,length\n", "no column for seconds (accepted: seconds: seconds or"),
    ],
)
def test_a_wrong_trace_is_told_in_one_line(
    tmp_path: Path,
    rows: tuple[str, ...],
    header: str,
    says: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["replay", trace(tmp_path, *rows, header=header)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["nowhere.csv"], 2, "nowhere.csv: No such file"),
        (["nowhere"], 2, "No such file"),
        (["DIR"], 2, "there is no recording"),
        (["TRACE", "--backend", "gpuu"], 2, "did you mean gpu?"),
        (["TRACE", "--worker", "one"], 2, "--worker needs --config"),
        (["TRACE", "--config", "CONFIG", "--worker", "two"], 4, 'no worker "two"'),
        (["DIR", "--backend", "cpu"], 2, "--backend is for a step trace"),
    ],
)
def test_what_cannot_be_replayed_is_told(
    tmp_path: Path,
    config: str,
    arguments: list[str],
    code: int,
    says: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    meant = {"DIR": str(tmp_path), "CONFIG": config, "TRACE": trace(tmp_path, "0,1,1,1,1")}
    assert main(["replay", *(meant.get(word, word) for word in arguments)]) == code
    assert says in capsys.readouterr().err


@pytest.fixture
def recorded(tmp_path: Path) -> str:
    """A worker that the operator started and stopped."""
    made = Recording(tmp_path / "state" / "recording", 1 << 20, SystemClock())
    state = WorkerState("one")
    made.put(Came(state, None))
    for at, word in ((1.0, "start"), (2.0, "stop")):
        outcome = command(state, word, at)
        state = outcome.state
        made.put(Came(state, outcome.call, tuple(outcome.events)))
    made.close(30)
    return str(tmp_path / "state")


def test_a_recording_is_the_same_as_recorded(
    recorded: str, config: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", recorded, "--config", config]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told == [
        "1 worker, 2 calls of 1 daemon: as recorded 0 alarms, 0 deaths, 0 restarts",
        "the same transitions as recorded",
        "by the rules of the file: 0 alarms, 0 deaths, 0 restarts",
        "nothing changes",
    ]


def test_of_a_worker_that_is_not_in_it_the_names_are_told(
    recorded: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", recorded, "--worker", "onn"]) == 4
    assert "did you mean one?" in capsys.readouterr().err
