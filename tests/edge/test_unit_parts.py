"""Names, environments, programs and facts of units, without a systemd."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.core.evidence import Exit
from stepwarden.edge.environment_file import EnvironmentFiles, encode, problem_with
from stepwarden.edge.process_probe import identify
from stepwarden.edge.unit_facts import UnitFacts, main_process, read_facts
from stepwarden.edge.unit_names import incarnation_of, slice_of, unit_name
from stepwarden.edge.unit_program import program_path, why_not_started
from stepwarden.edge.unit_workers import refusal

ALLOWED = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:_.-\\")


def test_a_plain_name_stays_readable() -> None:
    unit = unit_name("prefill-0.12.00ab34cd")
    assert unit == "stepwarden-prefill-0-12.00ab34cd.service"
    assert incarnation_of(unit) == ("prefill-0", "prefill-0.12.00ab34cd")
    assert slice_of(unit) == r"stepwarden-prefill\x2d0-12.00ab34cd.slice"


@given(
    worker=st.text(min_size=1, max_size=12),
    number=st.integers(0, 10**6),
    suffix=st.text("0123456789abcdef", min_size=8, max_size=8),
)
def test_every_name_comes_back(worker: str, number: int, suffix: str) -> None:
    incarnation = f"{worker}.{number}.{suffix}"
    unit = unit_name(incarnation)
    assert incarnation_of(unit) == (worker, incarnation)
    assert set(unit) <= ALLOWED
    assert slice_of(unit).count("-") == 2


@pytest.mark.parametrize("name", ["", "w", "w.1", "w.1.xyz", ".1.ab"])
def test_what_is_no_incarnation_has_no_unit(name: str) -> None:
    with pytest.raises(ValueError, match="no incarnation"):
        unit_name(name)


def test_a_name_too_long_for_systemd_is_refused() -> None:
    with pytest.raises(ValueError, match="longer than 255"):
        unit_name(f"{'ä' * 64}.1.00ab34cd")


@pytest.mark.parametrize(
    "unit", ["stepwarden.service", "stepwarden-exporter.service", "x-w-1.ab.service", "a.slice"]
)
def test_units_of_others_are_not_ours(unit: str) -> None:
    assert incarnation_of(unit) is None


def test_the_environment_file_is_private_and_short_lived(tmp_path: Path) -> None:
    files = EnvironmentFiles(tmp_path)
    path = files.write("x.service", {"TOKEN": 'a"b\\c$d`e\nf'})
    assert path.read_text() == 'TOKEN="a\\"b\\\\c\\$d\\`e\nf"\n'
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    with pytest.raises(FileExistsError):
        files.write("x.service", {})
    files.remove("x.service")
    files.remove("x.service")
    assert not path.exists()
    files.close()
    assert not path.parent.exists()


def test_what_a_killed_daemon_left_is_taken_away() -> None:
    home = Path("/dev/shm") / f"test-{os.getpid()}-{os.urandom(4).hex()}"
    home.mkdir()
    try:
        left = EnvironmentFiles(home).write("x.service", {"TOKEN": "s"})
        again = EnvironmentFiles(home)
        assert not left.exists()
        again.close()
    finally:
        home.rmdir()


def test_what_systemd_would_drop_is_named_without_its_value() -> None:
    assert problem_with({"A": "1", "_b2": "ü\n"}) is None
    assert "'BASH_FUNC_x%%'" in str(problem_with({"BASH_FUNC_x%%": "() { :; }"}))
    assert problem_with({"A": "secret\udcff"}) == (
        "the environment variable A is not UTF-8, and systemd takes nothing else"
    )
    assert encode({}) == ""


def test_the_program_is_looked_up_in_the_workers_path(tmp_path: Path) -> None:
    program = tmp_path / "engine"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    env = {"PATH": f"/nowhere:{tmp_path}"}
    assert program_path("engine", env, "/") == str(program)
    assert program_path("./engine", env, str(tmp_path)) == f"{tmp_path}/./engine"
    assert program_path("no-such-engine", env, "/") is None
    assert program_path("sh", {}, "/") is not None


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (203, "Exec format error (ENOEXEC)"),
        (205, "systemd could not set its limits (status 205/LIMITS)"),
        (227, "systemd could not set it up (status 227)"),
    ],
)
def test_a_failed_start_is_said_in_words(tmp_path: Path, status: int, words: str) -> None:
    program = tmp_path / "engine"
    program.write_text("text\n")
    program.chmod(0o755)
    assert why_not_started(status, str(program), "engine", "/") == f"cannot start 'engine': {words}"


def facts(**properties: tuple[str, object]) -> UnitFacts | None:
    """Facts of a unit that is there, with some properties."""
    return read_facts({"LoadState": ("s", "loaded"), "Id": ("s", "x.service"), **properties})


@pytest.mark.parametrize(
    ("code", "status", "expected"),
    [
        (0, 0, None),
        (1, 7, Exit(code=7)),
        (2, 9, Exit(signal=9)),
        (3, 11, Exit(signal=11)),
    ],
)
def test_how_main_ended(code: int, status: int, expected: Exit | None) -> None:
    found = facts(ExecMainCode=("i", code), ExecMainStatus=("i", status))
    assert found is not None
    assert found.exit == expected


def test_systemds_own_word_for_memory_counts() -> None:
    found = facts(Result=("s", "oom-kill"), ExecMainCode=("i", 2), ExecMainStatus=("i", 9))
    assert found is not None
    assert found.exit == Exit(signal=9, oom=True)


def test_the_exit_of_a_former_main_is_not_told_of_one_that_runs() -> None:
    found = facts(MainPID=("u", os.getpid()), ExecMainCode=("i", 1), ExecMainStatus=("i", 3))
    assert found is not None
    assert found.exit is None


def test_a_pid_outside_of_the_units_group_is_somebody_else() -> None:
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    own = next(path for _, controllers, path in (line.split(":", 2) for line in lines)
               if controllers in {"", "name=systemd"})  # fmt: skip
    assert main_process(os.getpid(), f"{own.rstrip('/')}/nobody.service") is None
    assert main_process(os.getpid(), "") is None
    assert main_process(os.getpid(), own) == identify(os.getpid())
    assert main_process(0, own) is None


def test_which_units_can_be_workers() -> None:
    assert refusal("x.service", facts(Restart=("s", "no"))) is None
    assert "Restart=always: two restarters" in str(
        refusal("x.service", facts(Restart=("s", "always")))
    )
    masked = read_facts({"LoadState": ("s", "masked")})
    assert refusal("x.service", masked) == "unit x.service cannot be used: systemd says masked"
    assert read_facts({"LoadState": ("s", "not-found")}) is None
    assert refusal("x.service", None) == "there is no unit x.service"
