"""O-CLI-1: every command in every state of the daemon has its documented code, and comes back.

Five states by ten commands; the codes are those of docs/cli.md.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from stepwarden.cli.main import COMMANDS
from stepwarden.errors import ExitCode
from support.crew import Crew, stub

GOOD = "workers:\n  w1: {command: [/bin/true], backend: cpu, agent: none}\n"
ASK: dict[str, list[str]] = {
    "status": ["status"],
    "status W9": ["status", "W9"],
    "start": ["start", "W1"],
    "stop": ["stop", "W1"],
    "restart": ["restart", "W1"],
    "start of one that exits at once": ["start", "once", "--ready"],
}
CHECK = {
    "check good": (["check", "good.yaml"], ExitCode.OK),
    "check bad": (["check", "bad.yaml"], ExitCode.CONFIG),
    "check missing": (["check", "none.yaml"], ExitCode.CONFIG),
}
RUNNING = {
    "status": ExitCode.OK,
    "status W9": ExitCode.UNKNOWN_WORKER,
    "start": ExitCode.OK,
    "stop": ExitCode.OK,
    "restart": ExitCode.OK,
    "start of one that exits at once": ExitCode.ACTION_FAILED,
    "reload of a bad file": ExitCode.CONFIG,
}
STATES = {
    "running": None,
    "not running": ExitCode.UNREACHABLE,
    "frozen": ExitCode.UNREACHABLE,
    "no permission": ExitCode.REFUSED,
    "other version": ExitCode.UNREACHABLE,
}
if "reload" in COMMANDS:
    ASK["reload of a bad file"] = ["reload"]


@contextmanager
def other_version(path: Path) -> Iterator[None]:
    """A daemon that knows none of our calls."""
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_insecure_port(f"unix:{path}")
    server.start()
    try:
        yield
    finally:
        server.stop(None).wait(20)


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    workers = {
        "W1": stub("attach; idle"),
        "slow": stub("attach loading", autostart=False),
        "once": stub("exit 3", autostart=False, restart={"on": "never"}),
    }
    with Crew(workers) as crew:
        crew.wait_state("W1", "HEALTHY")
        (crew.directory / "good.yaml").write_text(GOOD)
        (crew.directory / "bad.yaml").write_text(GOOD + "wrokers: {}\n")
        yield crew


@pytest.fixture(params=STATES)
def state(request: pytest.FixtureRequest, crew: Crew) -> Iterator[tuple[str, str]]:
    """The name of a state, and the socket of a daemon that is in it."""
    socket = str(crew.directory / "run" / "admin.sock")
    with tempfile.TemporaryDirectory(prefix="sw-") as directory:
        path = Path(directory) / "admin.sock"
        match request.param:
            case "not running":
                yield request.param, str(path)
            case "frozen":
                os.kill(crew.pid, signal.SIGSTOP)
                try:
                    yield request.param, socket
                finally:
                    os.kill(crew.pid, signal.SIGCONT)
            case "no permission":
                mode = os.stat(socket).st_mode
                os.chmod(socket, 0)
                try:
                    yield request.param, socket
                finally:
                    os.chmod(socket, mode)
            case "other version":
                with other_version(path):
                    yield request.param, str(path)
            case _:
                yield request.param, socket


def ask(crew: Crew, socket: str, words: list[str], timeout: float) -> tuple[int, str, str]:
    """Run a command without the powers of root over files; its code and what it said."""
    command = [sys.executable, "-m", "stepwarden", *words]
    if os.getuid() == 0:
        powers = "-dac_override,-dac_read_search"
        command = ["setpriv", f"--bounding-set={powers}", "--inh-caps=-all", *command]
    if words[0] != "check":
        command += ["--socket", socket, f"--timeout={timeout:g}"]
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=crew.directory,
        env=crew.environment(),
        timeout=timeout + 60,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.skipif(
    os.getuid() == 0 and shutil.which("setpriv") is None, reason="root, and there is no setpriv"
)
def test_o_cli_1_every_command_in_every_state(crew: Crew, state: tuple[str, str]) -> None:
    name, socket = state
    expected = STATES[name]
    good = crew.config.read_text()
    for title, words in ASK.items():
        timeout = {"running": 20.0, "frozen": 0.5}.get(name, 5.0)
        if title.startswith("reload"):
            crew.config.write_text(good + "wrokers: {}\n")
        code, out, error = ask(crew, socket, words, timeout)
        crew.config.write_text(good)
        wanted = RUNNING[title] if expected is None else expected
        assert code == wanted, f"{title}: {out}{error}"
        assert "Traceback" not in error
        if code:
            assert out == "", title
            if not title.startswith("reload"):
                assert (error.count("\n"), error[:12]) == (1, "stepwarden: "), f"{title}: {error}"
        else:
            assert (error, bool(out)) == ("", True), title
    for title, (words, wanted) in CHECK.items():
        code, out, error = ask(crew, socket, words, 5.0)
        assert code == wanted, f"{title}: {out}{error}"
        assert "Traceback" not in error


def test_o_cli_1_a_frozen_daemon_is_told_within_the_default_limit(crew: Crew) -> None:
    os.kill(crew.pid, signal.SIGSTOP)
    try:
        done = crew.cli("status", "--config", str(crew.config))
    finally:
        os.kill(crew.pid, signal.SIGCONT)
    assert done.returncode == ExitCode.UNREACHABLE
    assert done.stderr.endswith("did not answer within 5 s\n")


def test_o_cli_1_a_start_that_is_waited_for(crew: Crew) -> None:
    place = ("--config", str(crew.config))
    done = crew.cli("restart", "W1", "--ready", *place)
    assert (done.returncode, done.stdout) == (0, "W1 is HEALTHY\n")
    done = crew.cli("start", "W1", "--ready", *place)
    assert (done.returncode, done.stdout) == (0, "W1 is HEALTHY\n")
    done = crew.cli("start", "once", "--ready", *place)
    assert done.returncode == ExitCode.ACTION_FAILED
    assert done.stderr.startswith("stepwarden: once is DEAD: ")
    assert "exit code 3" in done.stderr
    # Without it the life has begun, and no more is said.
    done = crew.cli("start", "once", *place)
    assert (done.returncode, done.stdout) == (0, "once: STOPPED -> STARTING\n")
    crew.wait_state("once", "STOPPED")


def test_o_cli_1_a_start_that_takes_longer_than_the_wait(crew: Crew) -> None:
    place = ("--config", str(crew.config))
    done = crew.cli("start", "slow", "--ready", "--wait", "1", *place)
    assert done.returncode == ExitCode.ACTION_FAILED
    assert done.stderr == "stepwarden: after 1 s slow is STARTING; the start goes on\n"
    done = crew.cli("start", "W1", "--ready", "--no-wait", *place)
    assert (done.returncode, done.stderr.count("\n")) == (ExitCode.USAGE, 1)
