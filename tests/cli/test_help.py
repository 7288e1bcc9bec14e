"""`COMMAND --help`, `stepwarden help` and the manual page suffice, and agree."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess

import pytest
from stepwarden.cli.help_texts import CODES, TEXTS
from stepwarden.cli.main import COMMANDS, build_parser, main
from stepwarden.errors import ExitCode


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    try:
        code = main(list(words))
    except SystemExit as error:
        code = int(error.code or 0)
    out, error_text = capsys.readouterr()
    assert (code, error_text) == (0, "")
    return out


def test_every_exit_code_has_a_text() -> None:
    assert set(CODES) == set(ExitCode)


@pytest.mark.parametrize("command", sorted(set(COMMANDS) & set(TEXTS)))
def test_the_help_of_a_command_has_examples_and_exit_codes(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    text = told(capsys, command, "--help")
    assert f"\n  stepwarden {command}" in text or f" stepwarden {command}" in text
    assert "\nexamples:\n" in text
    assert "\nexit codes:\n    0  done\n" in text
    for code in TEXTS[command][2]:
        assert f"\n  {int(code):>3}  " in text
    assert text == told(capsys, "help", command)


def test_examples_are_command_lines_that_are_accepted() -> None:
    for command, (_, examples, _) in TEXTS.items():
        for example in examples:
            words = shlex.split(example)
            words = words[words.index("stepwarden") + 1 :]
            stop = next((i for i, w in enumerate(words) if w in ("|", "||", ">")), len(words))
            assert words[0] == command
            if command in COMMANDS:
                build_parser([command]).parse_args(words[:stop])


def test_the_manual_has_every_command_and_option(capsys: pytest.CaptureFixture[str]) -> None:
    text = told(capsys, "help")
    for command in COMMANDS:
        assert f"\n{command.upper()}\n" in text
    assert "--timeout SECONDS" in text
    assert "EXIT STATUS" in text
    prose = [line for line in text.splitlines() if not line.startswith("  $ ")]
    assert max(len(line) for line in prose) <= 80


@pytest.mark.parametrize("words", [["help", "statsu"], ["statsu"], ["statsu", "--json"]])
def test_an_unknown_command_is_one_line(
    capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main(words) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert error.startswith('stepwarden: there is no command "statsu"')
    assert "did you mean status?" in error
    assert error.count("\n") == 1


def test_the_manual_page_is_clean_roff(capsys: pytest.CaptureFixture[str]) -> None:
    page = told(capsys, "help", "--man")
    assert page.startswith(".TH STEPWARDEN 1 ")
    for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "EXIT STATUS", "FILES"):
        assert f"\n.SH {section}\n" in page
    for command in COMMANDS:
        assert f"\n.SS stepwarden {command}\n" in page
    if shutil.which("groff") is None and "STEPWARDEN_TEST_TOOLS" not in os.environ:
        pytest.skip("there is no groff here to read the page with")
    done = subprocess.run(
        ["groff", "-man", "-ww", "-Tutf8", "-z"],
        input=page,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
