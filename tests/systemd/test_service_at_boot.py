"""O-SYSD-3: when the service has started, what a start may fail of, and a loop that blocks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.daemon_box import CONFIG, CREW, PYTHON, UNIT, DaemonBox, daemon_box
from support.systemd_init import SHARE
from support.waiting import wait_for

pytestmark = [pytest.mark.systemd, pytest.mark.timeout(300)]

# Its model takes a minute to load.
SLOW = """\
supervisor: {health: {listen: ["127.0.0.1:50051"]}}
workers:
  slow: {backend: cpu, agent: none, ready: {delay: 60s}, command: [/bin/sleep, "100001"]}
"""
STARTS = 5
CONNECT = "import socket; socket.create_connection(('127.0.0.1', 50051), 5)"
# The interpreter runs it in the thread of the loop, which so stands while all others go on.
BLOCK = """\
import signal, time
signal.signal(signal.SIGUSR2, lambda *_: time.sleep(600))
"""
AFFINITY = f"""\
import os, pathlib, time
try:
    os.sched_setaffinity(0, os.sched_getaffinity(0))
    said = "may"
except PermissionError:
    said = "may not"
pathlib.Path("{SHARE}/affinity").write_text(said)
time.sleep(100000)
"""
SPAWNED = f"""\
supervisor: {{runner: spawn}}
workers:
  w: {{backend: cpu, agent: none, command: [{PYTHON}, {SHARE}/affinity.py]}}
"""
SANDBOXED = f"spawned in the sandbox of {UNIT} ("


@pytest.fixture(scope="module")
def box() -> Iterator[DaemonBox]:
    with daemon_box() as made:
        yield made


def cpu_seconds(box: DaemonBox) -> float:
    """What the daemon has used since it was started: two seconds of that are as many on a machine
    that has nothing else to do, and a test must not fail of one that has.
    """
    name = "CPUUsageNSec"
    return int(box.show(UNIT, name)[name]) / 1e9


def test_o_sysd_3_active_when_it_serves_not_when_models_are_loaded(box: DaemonBox) -> None:
    took = []
    with box.dropped_in("TimeoutStartSec=10"):
        for _ in range(STARTS):
            with box.serving(SLOW):
                took.append(cpu_seconds(box))
                box.run(PYTHON, "-c", CONNECT)
                assert box.workers()["slow"]["state"] == "STARTING"
                assert "1 STARTING" in box.show(UNIT, "StatusText")["StatusText"]
    assert min(took) < 2


def test_o_sysd_3_a_bad_file_ends_it_at_once_and_for_good(box: DaemonBox) -> None:
    took = []
    for _ in range(STARTS):
        box.configure("workers: {w: {backend: cpu, comand: [/bin/true]}}\n")
        assert box.run("systemctl", "start", UNIT, check=False).returncode != 0
        took.append(cpu_seconds(box))
        shown = box.show(UNIT, "ActiveState", "ExecMainStatus", "NRestarts")
        assert shown == {"ActiveState": "failed", "ExecMainStatus": "78", "NRestarts": "0"}
        box.run("systemctl", "reset-failed", UNIT)
    assert min(took) < 2
    assert "did you mean" in box.journal("-u", UNIT, "-n", "20")


def test_o_sysd_3_a_read_only_state_directory_stops_nothing(box: DaemonBox) -> None:
    with (
        box.dropped_in("ReadOnlyPaths=/var/lib/stepwarden", "TimeoutStartSec=20"),
        box.serving(CREW % "auto"),
    ):
        pids = box.healthy("one", "two")
        box.run("kill", "-KILL", str(pids["one"]))
        box.until(lambda w: w["one"]["pid"] not in {None, pids["one"]}, "another life of it")
        assert box.healthy("one", "two")["two"] == pids["two"]
        assert "read-only" in box.cli("status", check=False).lower()


def test_o_sysd_3_without_a_notify_socket_it_is_the_same(box: DaemonBox) -> None:
    with (
        box.dropped_in("Type=exec", "NotifyAccess=none", "WatchdogSec=0"),
        box.serving(CREW % "auto"),
    ):
        since = box.now()
        environ = box.run("cat", f"/proc/{box.main_pid()}/environ").stdout
        assert "NOTIFY_SOCKET=" not in environ
        box.healthy("one", "two")
        assert '"level": "error"' not in box.journal("--since", since, "-u", UNIT)


def test_o_sysd_3_the_watchdog_finds_a_loop_that_blocks(box: DaemonBox) -> None:
    """Its other threads go on; workers do not notice, and the next daemon adopts them."""
    hooks = box.share / "hooks"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(BLOCK, encoding="utf-8")
    settings = (f"Environment=PYTHONPATH={SHARE}/hooks", "WatchdogSec=2s", "RestartSec=100ms")
    with box.dropped_in(*settings, "TimeoutAbortSec=1s"), box.serving(CREW % "auto"):
        pids, processes, since = box.healthy("one", "two"), box.processes(), box.now()
        box.run("kill", "-USR2", str(box.main_pid()))
        again = {"ActiveState": "active", "NRestarts": "1"}
        wait_for(lambda: box.show(UNIT, *again) == again, 40, "systemd has replaced it")
        assert "Watchdog timeout" in box.journal("--since", since)
        assert box.healthy("one", "two") == pids
        assert box.processes() == processes


def test_systemctl_reload_tells_what_came_of_it(box: DaemonBox) -> None:
    """A good file holds at once, a bad one fails the command and changes nothing."""
    with box.serving(SLOW):
        daemon = box.main_pid()
        box.configure(
            SLOW + '  more: {backend: cpu, agent: none, command: [/bin/sleep, "100002"]}\n'
        )
        box.run("systemctl", "reload", UNIT)
        assert set(box.workers()) == {"slow", "more"}
        pid = box.healthy("more")["more"]
        box.configure("workers: {slow: {backend: cpu, comand: [/bin/true]}}\n")
        assert box.run("systemctl", "reload", UNIT, check=False).returncode != 0
        assert box.healthy("more") == {"more": pid}
        assert box.active()
        assert box.main_pid() == daemon


def test_workers_that_are_spawned_in_the_sandbox_are_told_of(box: DaemonBox) -> None:
    (box.share / "affinity.py").write_text(AFFINITY, encoding="utf-8")
    said = box.share / "affinity"
    with box.serving(SPAWNED):
        box.healthy("w")
        wait_for(lambda: SANDBOXED in box.cli("events"), 20, "it is told")
        (line,) = (line for line in box.cli("events").splitlines() if SANDBOXED in line)
        assert "DevicePolicy=closed, ProtectHome=read-only, RestrictNamespaces=yes): w;" in line
        wait_for(said.exists, 20, "it has tried")
        assert said.read_text() == "may not"
    said.unlink()
    box.install_drop_in("spawn")
    try:
        with box.serving(SPAWNED):
            box.healthy("w")
            wait_for(said.exists, 20, "it has tried")
            assert said.read_text() == "may"
            assert SANDBOXED not in box.cli("events")
    finally:
        box.remove_drop_in("spawn")


def test_workers_in_units_of_their_own_are_in_no_sandbox(box: DaemonBox) -> None:
    (box.share / "affinity.py").write_text(AFFINITY, encoding="utf-8")
    (box.share / "affinity").unlink(missing_ok=True)
    with box.serving(SPAWNED.replace("spawn", "systemd")):
        box.healthy("w")
        wait_for((box.share / "affinity").exists, 20, "it has tried")
        assert (box.share / "affinity").read_text() == "may"
        assert SANDBOXED not in box.cli("events")


def test_the_file_is_the_one_of_the_unit(box: DaemonBox) -> None:
    with box.serving(SLOW):
        assert f"serves 1 worker from {CONFIG}" in box.cli("events")
