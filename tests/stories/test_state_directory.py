"""Trouble with the state directory never stops supervision."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

from stepwarden.errors import ExitCode
from support.daemon import Daemon
from support.waiting import wait_for

WORKER = """
workers:
  w:
    agent: none
    command: [sleep, "600"]
    restart: {delay: 0, limit: 3}
"""


def ask(daemon: Daemon, *words: str) -> subprocess.CompletedProcess[str]:
    return daemon.cli(*words, "--config", str(daemon.config))


def zero(path: Path) -> None:
    path.write_bytes(b"")


def nul(path: Path) -> None:
    path.write_bytes(bytes(512))


def half(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def json_list(path: Path) -> None:
    path.write_bytes(b"[]")


def newer(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.parent / "nowhere")


def test_o_state_1_a_daemon_starts_over_any_damage_and_doubles_nobody() -> None:
    with Daemon(WORKER) as daemon:
        first = daemon.wait_state("w", "HEALTHY").pid
        path = daemon.directory / "state" / "stepwarden.sqlite"
        for number, damage in enumerate((zero, nul, half, json_list, newer, a_directory, dangling)):
            daemon.kill()
            wal_into(path)
            damage(path)
            before = daemon.log.stat().st_size
            daemon.start()
            assert daemon.wait_state("w", "HEALTHY").pid == first
            said = daemon.log.read_text(errors="replace")[before:].splitlines()
            errors = [line for line in said if '"level": "error"' in line]
            assert len(errors) == 1, damage
            assert f"the state database {path} " in errors[0]
            assert "it was kept as" in errors[0]
            aside = [
                p for p in path.parent.iterdir() if ".damaged-" in p.name or ".newer" in p.name
            ]
            assert len(aside) == min(number + 1, 6)
            assert "it was kept as" in ask(daemon, "status").stdout.replace("\n  ", " ")


def test_o_rstr_2_a_stop_holds_though_the_database_is_damaged_while_the_daemon_is_down() -> None:
    with Daemon(WORKER) as daemon:
        daemon.wait_state("w", "HEALTHY")
        assert ask(daemon, "stop", "w").returncode == ExitCode.OK
        path = daemon.directory / "state" / "stepwarden.sqlite"
        for damage in (nul, a_directory):
            daemon.kill()
            wal_into(path)
            damage(path)
            daemon.start()
            assert daemon.wait_state("w", "STOPPED").pid == 0
        assert ask(daemon, "start", "w").returncode == ExitCode.OK


def wal_into(path: Path) -> None:
    """What a kill leaves beside the database goes into it."""
    database = sqlite3.connect(path)
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()


def test_o_rstr_2_a_stop_holds_over_kill_9_though_the_database_takes_nothing() -> None:
    with Daemon(WORKER) as daemon:
        daemon.wait_state("w", "HEALTHY")
        locker = sqlite3.connect(
            daemon.directory / "state" / "stepwarden.sqlite", isolation_level=None
        )
        locker.execute("BEGIN IMMEDIATE")
        assert ask(daemon, "stop", "w").returncode == ExitCode.OK
        daemon.wait_state("w", "STOPPED")
        run = daemon.directory / "run"
        wait_for(lambda: list(run.glob("state-*/worker-notes.json")))
        assert "locked" in ask(daemon, "status").stdout
        daemon.kill()
        daemon.start()
        assert daemon.wait_state("w", "STOPPED").pid == 0
        locker.close()
        daemon.kill()
        daemon.start()
        assert daemon.wait_state("w", "STOPPED").pid == 0
        assert ask(daemon, "start", "w").returncode == ExitCode.OK
        daemon.wait_state("w", "HEALTHY")


def test_events_are_there_when_the_daemon_is_down() -> None:
    with Daemon(WORKER) as daemon:
        daemon.wait_state("w", "HEALTHY")
        asked = ask(daemon, "events", "--json").stdout
        daemon.kill()
        told = ask(daemon, "events", "--json")
        assert told.returncode == ExitCode.OK
        assert asked
        assert told.stdout.startswith(asked)
        assert "these events are from" in told.stderr
        daemon.start()


def test_a_file_in_place_of_the_state_directory_is_told(tmp_path: Path) -> None:
    for state in (tmp_path / "file", tmp_path / "file" / "below"):
        (tmp_path / "file").touch()
        config = tmp_path / "stepwarden.yaml"
        head = f"supervisor: {{runtime_dir: {tmp_path}/run, state_dir: {state}}}\n"
        config.write_text(head + WORKER, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "stepwarden", "run", str(config)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == ExitCode.REFUSED
        assert done.stderr.splitlines(keepends=True)[-1] == (
            f"stepwarden: cannot use the state directory {state}: a file is in the way;"
            " supervisor.state_dir must be a directory\n"
        )


def start_another(daemon: Daemon, config: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "stepwarden", "run", str(config)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=daemon.environment(),
    )


def files(directory: Path) -> dict[str, int]:
    """Each file by its inode; SQLite's own come and go with the first daemon's work."""
    return {str(p): p.stat(follow_symlinks=False).st_ino for p in directory.rglob("*")}


def test_o_state_3_a_second_daemon_ends_and_touches_nothing() -> None:
    with Daemon(WORKER) as daemon:
        pid = daemon.wait_state("w", "HEALTHY").pid
        other = daemon.directory / "other.yaml"
        text = daemon.config.read_text(encoding="utf-8")
        run = str(daemon.directory / "run")
        other.write_text(text.replace(run, run + "-other").replace("127.0.0.1:", "127.0.0.2:"))
        recording = daemon.directory / "state" / "recording"
        wait_for(lambda: list(recording.glob("*")), 30, "the first daemon records nothing")
        before = files(daemon.directory / "state"), files(daemon.directory / "run")
        for configs in ((daemon.config,), (daemon.config, daemon.config), (other,)):
            seconds = [start_another(daemon, config) for config in configs]
            for second in seconds:
                _, said = second.communicate(timeout=60)
                assert second.returncode == ExitCode.ALREADY_RUNNING
                assert f"another stepwarden (pid {daemon.pid}) holds {daemon.directory}" in said
            assert (files(daemon.directory / "state"), files(daemon.directory / "run")) == before
            assert daemon.status()["w"].pid == pid
        assert not Path(run + "-other").exists()
