"""`stepwarden ledger` while no daemon answers: the history is scored, and nothing is changed."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stepwarden.cli.main import main
from stepwarden.clock import SystemClock
from stepwarden.core.event import Event, Kind
from stepwarden.errors import ExitCode
from support.state import durable, open_store

Run = Callable[..., tuple[int, str, str]]

LATE: dict[str, float | str] = {"step": 7, "age": 10.0, "rule": "yaml", "diagnosis": "slow"}


def told(worker: str, kind: Kind, to: str = "", **data: float | str) -> Event:
    life = {"worker": worker, "incarnation": "1"}
    return Event(kind, "a sentence", **life, to_state=to, cause="step", rank="0", data=data)


HISTORY = (
    told("a", Kind.TRANSITION, "UNHEALTHY", **LATE),
    told("a", Kind.FALSE_ALARM, step=7, seconds=14.0),
    told("b", Kind.TRANSITION, "UNHEALTHY", **LATE),
    told("b", Kind.SHADOW_ALARM, step=7, seconds=3.0, budget=3.0, yaml_budget=10.0, rule="learned"),
    told("b", Kind.TRANSITION, "DEAD", **LATE | {"age": 40.0, "stacks": "wedged"}),
    Event(Kind.DAEMON, "nothing to do with it"),
)


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory in which a daemon left its state."""
    with tempfile.TemporaryDirectory(prefix="sw-") as name:
        directory = Path(name)
        clock = SystemClock()
        with open_store(directory) as store:
            for event in HISTORY:
                store.journal.append(event, clock.monotonic(), clock.wall())
            assert durable(store)
        yield directory


@pytest.fixture
def run(home: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object, state: str = "state") -> tuple[int, str, str]:
        where = ("--socket", home / "admin.sock", "--state-dir", home / state)
        code = main(["ledger", *(str(each) for each in (*where, *arguments))])
        return (code, *capsys.readouterr())

    return call


def test_each_row_with_its_precision_and_what_learning_would_have_changed(run: Run) -> None:
    code, out, error = run()
    assert code == ExitCode.OK
    assert "these events are from" in error
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[1] == "alarm step slow yaml 1 1 0 0 50 % 10s 4s"
    assert lines[2] == "death step slow yaml 1 0 0 0 100 % 40s -"
    assert lines[3] == "learned_alarm step - learned 1 0 0 0 100 % 3s -"
    assert "raised 1 alarms that were confirmed, 7s sooner in the median, and 0 false" in out


def test_one_worker_as_json(run: Run) -> None:
    code, out, _ = run("--worker", "a", "--json")
    assert code == ExitCode.OK
    told = json.loads(out)
    (row,) = told["rows"]
    assert told["learn_on"] is None
    assert (row["scored"], row["false"], row["precision"]) == ("alarm", 1, 0.0)
    assert (row["detected"], row["recovered"]) == (10.0, 4.0)


def test_what_is_older_than_since_is_left_out(run: Run) -> None:
    code, out, _ = run("--since", "2999-01-01T00:00:00Z")
    assert (code, out) == (ExitCode.OK, "no alarm and no verdict of death so far\n")


def test_where_nothing_is_kept_it_is_one_line(run: Run, home: Path) -> None:
    code, out, error = run(state="nowhere")
    assert code == ExitCode.UNREACHABLE
    assert out == ""
    assert error.count("\n") == 1
    assert f"there is no history in {home}/nowhere" in error
