"""O-YAML-4 and O-YAML-5: `check` of every bad file, in a plain C locale and in a UTF-8 one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from stepwarden.config.problems import MAX_PROBLEMS
from support import bad_files

PLAIN = {"LC_ALL": "C", "PYTHONUTF8": "0"}
UTF_8 = {"LC_ALL": "C.UTF-8", "PYTHONUTF8": "0"}
REFUSED = sorted({*bad_files.HUGE, *bad_files.MALFORMED, *bad_files.SPECIAL})

Found = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)  # another user than root must come to the files
        bad_files.write_all(path)
        yield path


def checked(directory: Path, locale: dict[str, str]) -> Found:
    """What `check` said of each file, by its name with dashes."""
    done = subprocess.run(
        [sys.executable, "-m", "support.bad_files", str(directory)],
        env=os.environ | locale,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=110,
        check=True,
    )
    assert done.stderr == b""
    found: Found = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def found(directory: Path) -> Found:
    return checked(directory, PLAIN)


@pytest.mark.parametrize("name", REFUSED)
def test_o_yaml_4_and_5_a_bad_file_is_refused_in_a_line(name: str, found: Found) -> None:
    about = found[name.replace(" ", "-")]
    *problems, summary = about["text"].splitlines()
    assert about["code"] == 78
    assert "cannot be used: " in summary
    assert 1 <= len(problems) <= 2
    for line in (*problems, summary):
        assert all(" " <= character <= "~" for character in line)
        assert len(line) < 700
    if name in bad_files.PLACED:
        assert problems[0].split(":")[1].isdigit()
        assert problems[0].split(":")[2].isdigit()


@pytest.mark.parametrize("name", sorted({*bad_files.HUGE, "pipe", "zeros", "directory"}))
def test_o_yaml_4_it_costs_neither_time_nor_memory(name: str, found: Found) -> None:
    about = found[name.replace(" ", "-")]
    assert about["seconds"] < 1.0  # of CPU: the machine may be busy
    assert about["grown"] < bad_files.WATCHED_BYTES


@pytest.mark.parametrize("name", sorted(bad_files.MANY))
def test_a_file_that_is_wrong_everywhere_is_told_of_in_bounds(name: str, found: Found) -> None:
    about = found[name.replace(" ", "-")]
    *problems, _ = about["text"].splitlines()
    assert about["code"] == 78
    assert "there are more than 200 errors; the others are not listed" in about["text"]
    assert len([line for line in problems if ": error: " in line]) == MAX_PROBLEMS + 1
    assert len(problems) <= 2 * MAX_PROBLEMS + 2
    assert len(about["text"]) < 1 << 18
    assert about["seconds"] < 5.0


@pytest.mark.parametrize("name", sorted(bad_files.LOADS))
def test_o_yaml_5_byte_order_marks_and_line_ends_load(name: str, found: Found) -> None:
    assert found[name.replace(" ", "-")]["code"] == 0


def test_o_yaml_5_the_locale_changes_nothing(directory: Path, found: Found) -> None:
    other = checked(directory, UTF_8)
    assert {name: (about["code"], about["text"]) for name, about in other.items()} == {
        name: (about["code"], about["text"]) for name, about in found.items()
    }
