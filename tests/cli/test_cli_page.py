from __future__ import annotations

from pathlib import Path

import pytest
from stepwarden.cli.main import COMMANDS
from stepwarden.errors import ExitCode

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("code", list(ExitCode))
def test_the_page_names_every_exit_code(code: ExitCode) -> None:
    assert f"\n| {code.value} | {code.name} | " in PAGE


@pytest.mark.parametrize("command", list(COMMANDS))
def test_the_page_names_every_command(command: str) -> None:
    assert f"\n| `{command}" in PAGE
