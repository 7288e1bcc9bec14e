"""What makes the command line slow is imported only by the commands that need it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.admin_process import admin_process

_PROGRAM = """
import sys
from stepwarden.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit:
    pass
loaded = {name.split(".")[0] for name in sys.modules}
print(" ".join(sorted(loaded & {"grpc", "textual", "pydantic", "yaml", "structlog", "asyncio"})),
      file=sys.stderr)
"""


def loaded(*words: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stderr.splitlines()[-1].split() if done.stderr.strip() else []


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["status", "--help"]])
def test_help_loads_nothing_large(words: list[str]) -> None:
    assert loaded(*words) == []


def test_asking_a_daemon_loads_nothing_large(tmp_path: Path) -> None:
    path = str(tmp_path / "a.sock")
    with admin_process(Path(path)):
        for words in (["status"], ["status", "gemma-cpu"], ["events"], ["stop", "gemma-cpu"]):
            assert loaded(*words, "--socket", path) == []
