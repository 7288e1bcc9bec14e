"""`stepwarden events` while no daemon answers: read from disk, where nothing is changed."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stepwarden.cli.main import main
from stepwarden.clock import SystemClock
from stepwarden.core.event import Event, Kind
from stepwarden.edge import state_schema
from stepwarden.errors import ExitCode
from support.admin_process import admin_process
from support.state import durable, open_store, wish

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: object) -> tuple[int, str, str]:
        code = main(["events", *(str(argument) for argument in arguments)])
        return (code, *capsys.readouterr())

    return call


@pytest.fixture
def home() -> Iterator[Path]:
    """A configuration file whose daemon is down; killed while it wrote."""
    with tempfile.TemporaryDirectory(prefix="sw-") as name:
        directory = Path(name)
        clock = SystemClock()
        with open_store(directory / "alive") as store:
            for number in range(20):
                event = Event(Kind.DAEMON, f"event {number}", worker=f"w{number % 2}")
                store.journal.append(event, clock.monotonic(), clock.wall())
            store.note_worker(wish())
            assert durable(store)
            shutil.copytree(directory / "alive" / "state", directory / "state")
        shutil.copytree(directory / "alive" / "state", directory / "closed")
        (directory / "stepwarden.yaml").write_text(
            f"supervisor: {{runtime_dir: {directory}/run, state_dir: {directory}/state}}\n"
        )
        yield directory


def content(directory: Path) -> dict[str, tuple[int, int, bytes]]:
    return {
        p.name: (p.stat().st_mtime_ns, p.stat().st_mode, p.read_bytes())
        for p in directory.iterdir()
    }


@pytest.mark.parametrize("state", ["state", "closed"])
def test_events_are_read_from_disk_and_nothing_is_changed(home: Path, run: Run, state: str) -> None:
    directory = home / state
    assert (directory / "stepwarden.sqlite-wal").exists() == (state == "state")
    before, when = content(directory), directory.stat().st_mtime_ns
    code, out, error = run(
        "--socket", home / "run" / "admin.sock", "--state-dir", directory, "--json", "--limit", 3
    )
    assert code == ExitCode.OK
    assert [json.loads(line)["sentence"] for line in out.splitlines()] == [
        "event 17",
        "event 18",
        "event 19",
    ]
    assert error == (
        f"stepwarden: no daemon: there is no socket {home}/run/admin.sock;"
        f" these events are from {directory}/stepwarden.sqlite\n"
    )
    assert content(directory) == before
    assert directory.stat().st_mtime_ns == when


def test_the_configuration_file_names_the_directory(home: Path, run: Run) -> None:
    code, out, _ = run("--config", home / "stepwarden.yaml", "--worker", "w1", "--limit", 2)
    assert code == ExitCode.OK
    assert [line.split("  ")[-1] for line in out.splitlines()] == ["event 17", "event 19"]


def test_a_live_daemon_is_preferred(home: Path, run: Run) -> None:
    with admin_process(home / "admin.sock"):
        code, out, error = run("--socket", home / "admin.sock", "--state-dir", home / "state")
    assert code == ExitCode.OK
    assert "event 19" not in out
    assert error == ""


def test_following_takes_a_daemon(home: Path, run: Run) -> None:
    code, out, error = run("--config", home / "stepwarden.yaml", "--follow")
    assert code == ExitCode.UNREACHABLE
    assert (out, "no daemon" in error) == ("", True)


def test_with_a_socket_alone_no_directory_is_guessed(home: Path, run: Run) -> None:
    code, out, error = run("--socket", home / "none.sock")
    assert code == ExitCode.UNREACHABLE
    assert (out, error) == ("", f"stepwarden: no daemon: there is no socket {home}/none.sock\n")


def test_no_history_is_said(home: Path, run: Run) -> None:
    for directory in (home / "nowhere", home / "alive" / "run"):
        code, out, error = run("--socket", home / "none.sock", "--state-dir", directory)
        assert code == ExitCode.UNREACHABLE
        assert (out, f"there is no history in {directory}" in error) == ("", True)
        assert error.count("\n") == 1


def test_the_history_of_release_0_1_is_read_where_it_lies(home: Path, run: Run) -> None:
    old = home / "old"
    old.mkdir()
    with sqlite3.connect(old / "journal.sqlite") as database:
        database.executescript(state_schema.STEPS[0] + "PRAGMA user_version = 1;")
        row = (7, "2026-01-02T03:04:05.000+00:00", 1.0, "daemon", *[""] * 6, "of old", "{}")
        database.execute(f"INSERT INTO event VALUES ({', '.join('?' * 12)})", row)
    database.close()
    code, out, _ = run("--socket", home / "none.sock", "--state-dir", old)
    assert (code, "of old" in out) == (ExitCode.OK, True)
    assert [p.name for p in old.iterdir()] == ["journal.sqlite"]


@pytest.mark.parametrize("damage", ["empty", "nul", "half", "newer", "directory", "link"])
def test_damage_is_one_line_and_is_left_as_it_is(home: Path, run: Run, damage: str) -> None:
    directory = home / "closed"
    path = directory / "stepwarden.sqlite"
    if damage == "newer":
        with sqlite3.connect(path) as database:
            database.execute(f"PRAGMA user_version = {state_schema.VERSION + 1}")
        database.close()
    elif damage in ("directory", "link"):
        path.rename(path.with_name("away"))
        path.mkdir() if damage == "directory" else path.symlink_to("nowhere")
    else:
        size = path.stat().st_size
        path.write_bytes(
            {"empty": b"", "nul": bytes(512)}.get(damage, path.read_bytes()[: size // 2])
        )
    before = sorted(p.name for p in directory.iterdir())
    code, out, error = run("--socket", home / "none.sock", "--state-dir", directory)
    assert code == ExitCode.REFUSED
    assert out == ""
    assert error.count("\n") == 1
    assert f"its history cannot be read: {path}" in error
    assert sorted(p.name for p in directory.iterdir()) == before


_AS_NOBODY = """
import os, sys
from stepwarden.cli import events
from stepwarden.cli.main import main
import stepwarden.edge.state_history, stepwarden.config.sockets, stepwarden_proto.v1.supervisor_pb2
import grpc, google.protobuf.json_format
os.setgroups([]); os.setgid(65534); os.setuid(65534)
sys.exit(main(["events", "--socket", "/nowhere/admin.sock", "--state-dir", sys.argv[1]]))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="takes another user")
@pytest.mark.parametrize("mode", [0o555, 0o700])
def test_another_user_may_read_what_the_modes_allow(home: Path, mode: int) -> None:
    home.chmod(0o755)
    for path in (home / "state").iterdir():
        path.chmod(0o444)
    (home / "state").chmod(mode)
    done = subprocess.run(
        [sys.executable, "-c", _AS_NOBODY, str(home / "state")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if mode == 0o555:
        assert (done.returncode, "event 19" in done.stdout) == (ExitCode.OK, True), done.stderr
    else:
        assert done.returncode == ExitCode.REFUSED, done.stderr
        assert "Permission denied" in done.stderr
        assert done.stderr.count("\n") == 1
