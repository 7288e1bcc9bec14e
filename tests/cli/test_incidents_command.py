"""`stepwarden incidents` without a daemon: the state directory is read and nothing is changed."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from stepwarden.cli.main import main
from stepwarden.edge import bundle
from stepwarden.errors import ExitCode

Run = Callable[..., tuple[int, str, str]]
NAMES = [f"2026010{day}T030405Z-w{day % 2}-1-dead-000{day}" for day in (1, 2, 3)]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    def call(*arguments: object) -> tuple[int, str, str]:
        words = ["incidents", *(str(argument) for argument in arguments)]
        code = main([*words, "--state-dir", str(tmp_path / "state")])
        return (code, *capsys.readouterr())

    for day, name in enumerate(NAMES, 1):
        thread = {"name": "MainThread", "tid": 7, "main": True, "frames": ["acquire (e.py:5)"]}
        looks = {"age": 2.0, "ranks": {"0": {"pid": 7, "threads": [thread]}}}
        diff = {"0": {"place": "wedged", "sentence": "its main thread stands at acquire (e.py:5)"}}
        members = {
            "diff.json": json.dumps(diff).encode(),
            "stacks-last.json": json.dumps(looks).encode(),
            "output.txt": b"the last words\x1b[2J\n",
        }
        head = {
            "kind": "dead",
            "worker": f"w{day % 2}",
            "incarnation": "1",
            "time": f"2026-01-0{day}T03:04:05.000+00:00",
            "unix": 1767236645.0 + 86400 * (day - 1),
            "cause": "step",
            "sentence": "step 1 has run for 5 s",
            "stacks": {"0": "wedged"},
        }
        bundle.write_bundle(tmp_path / "state" / "incidents", name, head, members, 1)
    return call


def test_the_list_has_the_oldest_first(run: Run) -> None:
    code, out, _ = run()
    assert code == ExitCode.OK
    assert [line.split()[0] for line in out.splitlines()[1:]] == NAMES
    assert "wedged" in out


def test_it_can_be_of_one_worker_or_since_some_time(run: Run) -> None:
    assert [one["id"] for one in json.loads(run("--worker", "w0", "--json")[1])] == [NAMES[1]]
    found = json.loads(run("--since", "2026-01-02T00:00:00+00:00", "--json")[1])
    assert [one["id"] for one in found] == NAMES[1:]


def test_one_is_shown_with_its_stacks_and_nothing_steers_the_terminal(run: Run) -> None:
    code, out, _ = run("show", NAMES[0])
    assert code == ExitCode.OK
    assert "acquire (e.py:5)" in out
    assert "intact" in out
    assert "the last words" in out
    assert "\x1b" not in out
    told = json.loads(run("show", NAMES[0], "--json")[1])
    assert told["diff"]["0"]["place"] == "wedged"
    assert told["intact"] is True


def test_one_that_was_changed_is_shown_and_said_to_be_broken(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "state" / "incidents" / f"{NAMES[0]}.tar.gz"
    with tarfile.open(path) as archive:
        members = {e.name: archive.extractfile(e).read() for e in archive}  # type: ignore[union-attr]
    manifest = json.loads(members["manifest.json"])
    manifest["members"]["output.txt"]["sha256"] = "0" * 64
    raw = {**members, "manifest.json": json.dumps(manifest).encode()}
    path.write_bytes(bundle._packed(raw, 1))
    code, _, err = run("show", NAMES[0])
    assert code == ExitCode.REFUSED
    assert "output.txt was changed" in err


def test_an_export_is_the_file_itself_and_overwrites_none(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "out.tar.gz"
    assert run("export", NAMES[0], target)[0] == ExitCode.OK
    source = tmp_path / "state" / "incidents" / f"{NAMES[0]}.tar.gz"
    assert target.read_bytes() == source.read_bytes()
    assert target.stat().st_mode & 0o777 == 0o600
    code, _, err = run("export", NAMES[0], target)
    assert code == ExitCode.REFUSED
    assert "File exists" in err


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("show",), ExitCode.USAGE, "needs an ID"),
        (("list", "x"), ExitCode.USAGE, "takes no ID"),
        (("show", "x", "file"), ExitCode.USAGE, "writes no file"),
        (("show", "nothing"), ExitCode.UNKNOWN_WORKER, "there is no incident nothing"),
        (("show", "../../x"), ExitCode.UNKNOWN_WORKER, "there is no incident"),
        (("export", "nothing", "-"), ExitCode.UNKNOWN_WORKER, "there is no incident"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    run: Run, words: tuple[str, ...], code: ExitCode, told: str
) -> None:
    found, out, err = run(*words)
    assert (found, out) == (code, "")
    assert told in err
    assert len(err.splitlines()) == 1


def test_without_any_there_is_a_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["incidents", "--state-dir", str(tmp_path)]) == ExitCode.OK
    assert capsys.readouterr().out == "no incidents are kept\n"
