"""The installed wheel and the shipped unit in a booted box, and what the tests ask of them."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.box_wheel import ROOT, install_wheel, unmet
from support.systemd_box import SystemdBox
from support.systemd_init import SHARE
from support.waiting import wait_for

UNIT = "stepwarden.service"
CONFIG = "/etc/stepwarden/stepwarden.yaml"
PYTHON = f"{SHARE}/venv/bin/python"
COMMAND = f'#!/bin/sh\nexec {PYTHON} -m stepwarden "$@"\n'

# Beats, has a child in a session of its own, and leaves a mark when it ends in order.
BEATING = """\
import pathlib, signal, subprocess, sys, time
from stepwarden_agent import Agent
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
child = subprocess.Popen(["/bin/sleep", "100003"], start_new_session=True)
agent = Agent.from_env(phase="loading")
agent.phase("idle")
while not asked:
    with agent.step(1, 1, phase="decode"):
        time.sleep(0.05)
    print("a step", flush=True)
pathlib.Path(sys.argv[1]).write_text("in order")
child.kill()
"""
QUIET = "setsid sleep 100002 & trap 'exit 0' TERM; sleep 100001 & wait"
CREW = f"""\
supervisor:
  health: {{listen: ["127.0.0.1:50051"]}}
  runner: %s
defaults:
  stop: {{grace: 10s}}
  restart: {{delay: 100ms, jitter: 0}}
workers:
  one: {{backend: cpu, agent: required, command: [{PYTHON}, {SHARE}/beating.py, {SHARE}/drained]}}
  two: {{backend: cpu, agent: none, command: [/bin/sh, -c, "{QUIET}"]}}
"""
SLEEPERS = "sleep 10000[1-3]|beating[.]py"


class DaemonBox:
    """A booted box with the wheel, the unit and its configuration in place.

    `share`: the folder that both sides see.
    """

    def __init__(self, box: SystemdBox) -> None:
        self.box = box
        self.share = box.share
        self.run = box.run
        self.show = box.show

    def write(self, target: str, text: str, mode: str = "644") -> None:
        """Put a text at this path inside."""
        staged = self.share / "text"
        staged.write_text(text, encoding="utf-8")
        self.run("install", "-D", "-m", mode, f"{SHARE}/text", target)

    def configure(self, yaml: str) -> None:
        """The daemon's file."""
        self.write(CONFIG, yaml)

    def unit(self, name: str, *lines: str) -> None:
        """A unit of the operator's."""
        self.write(f"/run/systemd/system/{name}", "\n".join([*lines, ""]))
        self.run("systemctl", "daemon-reload")

    def drop_in(self, *settings: str) -> str:
        """Other settings for the shipped unit; the path of their file."""
        path = f"/run/systemd/system/{UNIT}.d/other.conf"
        self.write(path, "\n".join(["[Service]", *settings, ""]))
        self.run("systemctl", "daemon-reload")
        return path

    def install_drop_in(self, name: str) -> None:
        """One of the shipped drop-ins."""
        self.box.install(ROOT / f"systemd/{UNIT}.d/{name}.conf", self._shipped_drop_in(name))
        self.run("systemctl", "daemon-reload")

    def remove_drop_in(self, name: str) -> None:
        """Take it away again."""
        self.run("rm", self._shipped_drop_in(name))
        self.run("systemctl", "daemon-reload")

    @staticmethod
    def _shipped_drop_in(name: str) -> str:
        return f"/etc/systemd/system/{UNIT}.d/{name}.conf"

    @contextmanager
    def dropped_in(self, *settings: str) -> Iterator[None]:
        """The shipped unit with other settings, for as long as the block runs."""
        path = self.drop_in(*settings)
        try:
            yield
        finally:
            self.run("systemctl", "stop", UNIT)
            self.run("rm", path)
            self.run("systemctl", "daemon-reload")

    @contextmanager
    def serving(self, yaml: str) -> Iterator[None]:
        """The service with this file, active; afterwards nothing of it is left."""
        self.configure(yaml)
        self.run("systemctl", "start", UNIT)
        try:
            yield
        except BaseException:
            print(self.run("journalctl", "--no-pager", "-o", "cat", "-n", "120").stdout)
            raise
        finally:
            self.run("systemctl", "stop", UNIT)
            self.run("systemctl", "reset-failed", UNIT, check=False)
            # The second copies of the state outlive it, as they should.
            self.run("rm", "-rf", "/var/lib/stepwarden", "/run/stepwarden")

    # The daemon

    def main_pid(self) -> int:
        """Of the daemon; 0 for none."""
        return int(self.show(UNIT, "MainPID")["MainPID"])

    def kill(self, number: str = "KILL") -> int:
        """Signal the daemon, and wait until systemd has started another; the former pid."""
        before = self.main_pid()
        self.run("kill", f"-{number}", str(before))
        wait_for(lambda: self._another(before), 40, "another daemon serves")
        return before

    def _another(self, before: int) -> bool:
        """In one look: between two of them it might end."""
        shown = self.show(UNIT, "ActiveState", "MainPID")
        return shown["ActiveState"] == "active" and shown["MainPID"] not in {"0", str(before)}

    def active(self) -> bool:
        """It runs and has said READY."""
        return self.show(UNIT, "ActiveState")["ActiveState"] == "active"

    def cli(self, *words: str, check: bool = True) -> str:
        """What a command prints."""
        done = self.run("/usr/local/bin/stepwarden", *words, check=check)
        return done.stdout + done.stderr

    def workers(self) -> dict[str, dict[str, Any]]:
        """`status --json` by name; {} where nobody answers."""
        done = self.run("/usr/local/bin/stepwarden", "status", "--json", check=False)
        if done.returncode != 0:
            return {}
        return {worker["name"]: worker for worker in json.loads(done.stdout)["workers"]}

    def healthy(self, *names: str, limit: float = 40) -> dict[str, int]:
        """Wait until these are; their pids."""
        last: dict[str, dict[str, Any]] = {}

        def all_are() -> bool:
            last.update(self.workers())
            return all(last.get(name, {}).get("state") == "HEALTHY" for name in names)

        wait_for(all_are, limit, f"{names} are HEALTHY")
        return {name: int(last[name]["pid"]) for name in names}

    def until(self, holds: Callable[[dict[str, dict[str, Any]]], bool], what: str) -> None:
        """Wait for a state of the workers."""
        wait_for(lambda: holds(self.workers()), 40, what)

    # What there is of workers

    def processes(self) -> set[int]:
        """Every process of the crew's."""
        found = self.run("pgrep", "-f", SLEEPERS, check=False).stdout
        return {int(pid) for pid in found.split()}

    def transient(self) -> list[str]:
        """Transient services that systemd knows, failed ones too."""
        rows = self.run(
            "systemctl", "list-units", "--all", "--plain", "--no-legend", "stepwarden-*.service"
        )
        return [row.split()[0] for row in rows.stdout.splitlines()]

    def journal(self, *words: str) -> str:
        """Messages, the newest last."""
        return self.run("journalctl", "--no-pager", "-o", "cat", *words).stdout

    def now(self) -> str:
        """For `journal("--since", ...)`."""
        return f"@{time.time():.6f}"


@contextmanager
def daemon_box() -> Iterator[DaemonBox]:
    """Boot one; skips the test where none can be had."""
    with box_folder() as folder, booted(folder) as made:
        yield made


@contextmanager
def box_folder() -> Iterator[Path]:
    """Where boxes can be booted, one after the other; `share` in there is what stays of them."""
    reason = unmet()
    if reason is not None:
        pytest.skip(reason)
    # Not below /tmp: an overlay in memory would not see a file system mounted there.
    folder = Path(tempfile.mkdtemp(prefix="box-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def booted(folder: Path) -> Iterator[DaemonBox]:
    """One boot, with the wheel and the unit in place; powered off at the end."""
    with SystemdBox(folder) as box:
        if not (box.share / "venv").exists():
            install_wheel(box.share)
        made = DaemonBox(box)
        made.write("/usr/local/bin/stepwarden", COMMAND, mode="755")
        box.install(ROOT / "systemd" / UNIT, f"/etc/systemd/system/{UNIT}")
        (made.share / "beating.py").write_text(BEATING, encoding="utf-8")
        made.run("systemctl", "daemon-reload")
        yield made
