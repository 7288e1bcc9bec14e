"""Files of KEY=VALUE lines."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from stepwarden.config import ConfigError
from stepwarden.config.env_files import parse, read_env_files
from support.loading import errors, loaded


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("K=v", "v"),
        ("  K=v  ", "v"),
        ("K= v w ", "v w"),
        ("K=", ""),
        ("K=a=b", "a=b"),
        ("K=a # b", "a # b"),
        ("K=a\"b'c", "a\"b'c"),
        ("K=a\\nb", "a\\nb"),
        ("K=${X}", "${X}"),
        ("K='  a \\ \" # '", '  a \\ " # '),
        ("K=''", ""),
        ('K="a \\" \\\\ \\$ \\` $X"', 'a " \\ $ ` $X'),
        ("K=schlüssel", "schlüssel"),
    ],
)
def test_a_line_gives_one_value(line: str, value: str) -> None:
    assert parse(f"# note\n\n{line}\r\n  # end", "f") == {"K": value}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("K", "this line holds no KEY=VALUE"),
        ("export K=v", "leave out export"),
        ("K =v", "nothing may stand between the key and ="),
        ("1K=v", "not the name of a variable"),
        ("=v", "not the name of a variable"),
        ("STEPWARDEN_TOKEN=v", "set by the supervisor itself"),
        ("K='v", "has to end with '"),
        ("K='v' w", "has to end with '"),
        ('K="v', 'has to end with "'),
        ('K="\\v"', "a backslash goes before"),
        ("K=v\\", "is not continued"),
        ("A=again", "A is written twice, on line 1 too"),
    ],
)
def test_a_line_that_cannot_be_read_is_named_and_never_shown(line: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(f"A=hunter2\n# note\n{line.replace('v', 'hunter2')}\n", "/s.env")
    text = str(caught.value)
    assert text.startswith("/s.env:3:1: error: ")
    assert message in text
    assert "hunter2" not in text
    assert "\n" not in text


def test_the_later_file_wins_and_all_problems_are_told(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("A=1\nB=1\n")
    two.write_text("B=2\n")
    assert read_env_files([one, two]) == {"A": "1", "B": "2"}
    one.write_text("A\n")
    two.write_text("B\n")
    with pytest.raises(ConfigError) as caught:
        read_env_files([one, two, tmp_path / "none"])
    assert [problem.file for problem in caught.value.problems] == [
        str(one),
        str(two),
        str(tmp_path / "none"),
    ]


def test_a_fault_in_the_file_is_told_there_and_a_missing_file_where_it_is_named(
    tmp_path: Path,
) -> None:
    bad, none = tmp_path / "bad", tmp_path / "none"
    bad.write_text("A=1\noops\n")
    text = f"workers: {{w: {{env_file: [{bad}, {none}], command: [a, '${{B}}']}}}}"
    found = errors(text)
    assert found[""].startswith(f"{bad}:2:1: error: this line holds no KEY=VALUE")
    assert f"{none} cannot be opened: No such file" in found["workers.w.env_file[1]"]
    assert len(found) == 2, "B may be in a file that could not be read"


def test_a_file_that_everybody_can_read_is_a_warning_once(tmp_path: Path) -> None:
    secrets = tmp_path / "s.env"
    secrets.write_text("A=1\n")
    text = f"defaults: {{env_file: {secrets}, agent: none}}\n"
    text += "workers: {v: {command: [a]}, w: {command: [a]}}"
    for mode, expected in ((0o644, ["defaults.env_file"]), (0o640, [])):
        secrets.chmod(mode)
        assert [problem.path for problem in loaded(text).warnings] == expected


def test_a_pipe_is_refused_and_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="is not a regular file"):
        read_env_files([tmp_path / "pipe"])
