"""O-GRPC-7: the agent beside an engine's own protobuf and grpcio, in environments made for it.

Run by `make test-matrix`; each environment is made below STEPWARDEN_MATRIX_DIR, or in a scratch
directory. With a protobuf outside the range that we declare, the engine must run on, unmonitored
but for its page, with one line that names the version. Its grpcio, if any, is its own affair.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import stepwarden_agent
import stepwarden_proto
from support.agent_process import (
    agent_environment,
    engine,
    let_end,
    short_directory,
    wait_ticks,
)
from support.beat_server import BeatServer

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(600)]

# (protobuf, grpcio): the oldest protobuf that we allow, each major in between, the newest; with no
# grpcio, which the agent does not need, or with one that is older than the supervisor's may be.
INSIDE = [
    ("5.26.1", ""),
    ("5.29.5", ""),
    ("5.29.5", "1.49.1"),
    ("6.31.1", ""),
    ("6.33.0", ""),
    (">=7", ""),
]
OUTSIDE = [("3.19.6", "")]

ENGINE = """
import sys
from stepwarden_agent import Agent
agent = Agent.from_env()
for n in range(30):
    agent.end(agent.begin(n, n, "decode"))
sys.stdin.readline()
heavy = {"grpc", "numpy", "psutil", "yaml", "pydantic", "structlog", "jeepney"}
assert not heavy & set(sys.modules)
from stepwarden_proto import ring
assert ring.steps_begun(agent._page.words[:ring.PAGE_WORDS].tolist()) == 30
print("served")
"""


def requirement(name: str, version: str) -> str:
    """A requirement line: an exact version, a range, or any."""
    return name + (version if not version[:1].isdigit() else f"=={version}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kept = os.environ.get("STEPWARDEN_MATRIX_DIR")
    return Path(kept) if kept else tmp_path_factory.mktemp("matrix")


def environment_python(folder: Path, protobuf: str, grpcio: str) -> Path:
    """The Python of an environment with these versions and the agent; made on first use."""
    place = folder / f"pb{protobuf.strip('>=')}-grpc{grpcio or 'none'}"
    python = place / "bin" / "python"
    if not (place / "made").exists():
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        wanted = [requirement("protobuf", protobuf), "setuptools<81"]
        wanted += [requirement("grpcio", grpcio)] if grpcio else []
        pip = [str(python), "-m", "pip", "install", "--quiet", "--only-binary=:all:"]
        subprocess.run([*pip, *wanted], check=True)
        site = next((place / "lib").glob("python*/site-packages"))
        # Copied, not linked to: where they are installed, their neighbours are installed too.
        for module in (stepwarden_agent, stepwarden_proto):
            source = Path(str(module.__file__)).parent
            shutil.copytree(source, site / source.name, dirs_exist_ok=True)
        (place / "made").touch()
    return python


@dataclass(frozen=True)
class Run:
    """What one engine came to, and what the server heard of it."""

    code: int
    output: str
    errors: str
    beats: list[dict[str, Any]]


def run(
    python: Path, pages: Path, until: Callable[[BeatServer, subprocess.Popen[str]], object]
) -> Run:
    """Run the engine on `python` beside a beat server; it ends when `until` returns."""
    with short_directory() as short:
        target = f"unix:{short}/s"
        environment = agent_environment(target, pages)
        environment.pop("PYTHONPATH", None)
        with (
            BeatServer(target, pages / "log") as server,
            engine(ENGINE, environment, str(python)) as process,
        ):
            until(server, process)
            code, output, errors = let_end(process)
            return Run(code, output, errors, server.beats())


@pytest.mark.parametrize(("protobuf", "grpcio"), INSIDE)
def test_o_grpc_7_beats_over_the_whole_range(
    protobuf: str, grpcio: str, folder: Path, tmp_path: Path
) -> None:
    python = environment_python(folder, protobuf, grpcio)
    done = run(python, tmp_path, lambda server, _: server.wait_for(lambda _: True))
    assert (done.code, done.output, done.errors) == (0, "served\n", "")
    assert done.beats[-1]["reason"] == "BEAT_REASON_BYE"
    assert int(done.beats[-1]["steps_ended"]) == 30


@pytest.mark.parametrize(("protobuf", "grpcio"), OUTSIDE)
def test_o_grpc_7_outside_the_range_the_engine_runs_on(
    protobuf: str, grpcio: str, folder: Path, tmp_path: Path
) -> None:
    python = environment_python(folder, protobuf, grpcio)
    done = run(python, tmp_path, lambda *_: wait_ticks(tmp_path, 3))
    assert (done.code, done.output) == (0, "served\n")
    (line,) = done.errors.splitlines()
    assert f"protobuf {protobuf}" in line
    assert done.beats == []
