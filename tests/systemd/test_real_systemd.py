"""The shipped unit in a real systemd: starts, is watched, stops, and leaves nothing behind."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.box_wheel import ROOT, SYSTEM_PYTHON, install_wheel, unmet
from support.systemd_box import SystemdBox
from support.systemd_init import SHARE
from support.waiting import wait_for

pytestmark = [pytest.mark.systemd, pytest.mark.timeout(300)]

UNIT = "stepwarden.service"
CONFIG = "/etc/stepwarden/stepwarden.yaml"
COMMAND = f"""\
#!/bin/sh
exec {SHARE}/venv/bin/python -m stepwarden "$@"
"""
YAML = """\
supervisor:
  health: {listen: ["127.0.0.1:50051"]}
workers:
  sleeper:
    backend: cpu
    agent: none
    command: [/bin/sleep, "100000"]
"""
# Takes three seconds to drain, whatever signals it gets meanwhile.
DRAINING = """\
import pathlib, signal, time
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(time.monotonic()))
pathlib.Path("ready").touch()
while not asked or time.monotonic() < asked[0] + 3:
    time.sleep(0.05)
pathlib.Path("drained").touch()
"""
SLOW_TO_STOP = f"""\
workers:
  drains:
    backend: cpu
    agent: none
    command: [{SYSTEM_PYTHON}, {SHARE}/draining.py]
    stop: {{grace: 30s}}
"""
CHECK = """\
import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
with grpc.insecure_channel("127.0.0.1:50051") as channel:
    stub = health_pb2_grpc.HealthStub(channel)
    answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=10, wait_for_ready=True)
print(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))
"""


@pytest.fixture(scope="module")
def box() -> Iterator[SystemdBox]:
    """A booted box with the wheel, the unit, its user and its configuration in place."""
    reason = unmet()
    if reason is not None:
        pytest.skip(reason)
    # Not below /tmp: an overlay in memory would not see a file system mounted there.
    folder = Path(tempfile.mkdtemp(prefix="box-", dir="/var/tmp"))
    try:
        with SystemdBox(folder) as made:
            install_wheel(made.share)
            write(made, "/usr/local/bin/stepwarden", COMMAND, mode="755")
            write(made, CONFIG, YAML)
            made.install(ROOT / "systemd" / UNIT, f"/etc/systemd/system/{UNIT}")
            made.install(ROOT / "systemd/stepwarden.sysusers", "/etc/sysusers.d/stepwarden.conf")
            made.run("systemd-sysusers", "stepwarden.conf")
            made.run("systemctl", "daemon-reload")
            yield made
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def running(box: SystemdBox) -> Iterator[SystemdBox]:
    """The unit, active; afterwards it is inactive again, whatever the test did."""
    box.run("systemctl", "start", UNIT)
    try:
        yield box
    except BaseException:
        print(box.run("journalctl", "--no-pager", "-u", UNIT, "-n", "60").stdout)
        raise
    finally:
        box.run("systemctl", "stop", UNIT)
        box.run("systemctl", "reset-failed", UNIT, check=False)


def write(box: SystemdBox, target: str, text: str, mode: str = "644") -> None:
    staged = box.share / "text"
    staged.write_text(text, encoding="utf-8")
    box.run("install", "-D", "-m", mode, f"{SHARE}/text", target)


@contextmanager
def dropped_in(box: SystemdBox, *settings: str) -> Iterator[None]:
    """The unit with other settings, for as long as the block runs."""
    path = f"/run/systemd/system/{UNIT}.d/other.conf"
    write(box, path, "\n".join(["[Service]", *settings, ""]))
    box.run("systemctl", "daemon-reload")
    try:
        yield
    finally:
        box.run("systemctl", "stop", UNIT)
        box.run("rm", path)
        box.run("systemctl", "daemon-reload")


def main_pid(box: SystemdBox) -> int:
    return int(box.show(UNIT, "MainPID")["MainPID"])


def sleepers(box: SystemdBox) -> list[int]:
    """The worker's processes."""
    found = box.run("pgrep", "-u", "stepwarden", "-x", "sleep", check=False).stdout
    return [int(pid) for pid in found.split()]


def worker_runs(box: SystemdBox) -> int:
    """Wait until the worker is there; returns its pid."""
    wait_for(lambda: len(sleepers(box)) == 1, 20, "one worker runs")
    return sleepers(box)[0]


def test_the_unit_is_verified(box: SystemdBox) -> None:
    done = box.run(
        "systemd-analyze", "verify", "--recursive-errors=yes", f"/etc/systemd/system/{UNIT}"
    )
    assert done.stderr == ""


def test_o_sysd_3_active_when_it_serves(running: SystemdBox) -> None:
    shown = running.show(UNIT, "ActiveState", "SubState", "NotifyAccess", "WatchdogUSec", "User")
    assert shown == {
        "ActiveState": "active",
        "SubState": "running",
        "NotifyAccess": "main",
        "WatchdogUSec": "10s",
        "User": "stepwarden",
    }
    answer = running.run(f"{SHARE}/venv/bin/python", "-c", CHECK)
    assert answer.stdout == "SERVING\n"
    assert "worker" in running.show(UNIT, "StatusText")["StatusText"]


def test_o_sysd_3_the_notify_socket_stays_with_the_daemon(running: SystemdBox) -> None:
    environ = running.run("cat", f"/proc/{worker_runs(running)}/environ").stdout.split("\0")
    names = {entry.partition("=")[0] for entry in environ}
    assert "PATH" in names
    assert not names & {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}


def test_a_worker_is_no_late_victim_of_the_kernel(running: SystemdBox) -> None:
    """O-SYSD-2: the daemon is spared before its workers."""
    daemon = running.run("cat", f"/proc/{main_pid(running)}/oom_score_adj").stdout
    worker = running.run("cat", f"/proc/{worker_runs(running)}/oom_score_adj").stdout
    # Where the box may not raise a process above others (no CAP_SYS_RESOURCE), both are 0.
    assert int(daemon) in {-500, 0}
    assert int(worker) == 0


def test_the_loop_feeds_the_watchdog(running: SystemdBox) -> None:
    stamps = set()

    def several() -> bool:
        name = "WatchdogTimestampMonotonic"
        stamps.add(running.show(UNIT, name)[name])
        return len(stamps) >= 3

    wait_for(several, 20, "watchdog messages arrive")
    assert running.show(UNIT, "NRestarts")["NRestarts"] == "0"


def test_o_sysd_1_stop_leaves_nothing(box: SystemdBox) -> None:
    box.run("systemctl", "start", UNIT)
    worker_runs(box)
    box.run("systemctl", "stop", UNIT)
    shown = box.show(UNIT, "ActiveState", "Result", "ControlGroup")
    assert shown == {"ActiveState": "inactive", "Result": "success", "ControlGroup": ""}
    assert box.run("pgrep", "-u", "stepwarden", check=False).stdout == ""
    assert box.run("test", "-e", "/run/stepwarden", check=False).returncode == 1


def test_o_sysd_1_restart_replaces_every_process(running: SystemdBox) -> None:
    before = (main_pid(running), worker_runs(running))
    running.run("systemctl", "restart", UNIT)
    after = (main_pid(running), worker_runs(running))
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_o_sysd_1_a_killed_daemon_takes_its_workers_along(running: SystemdBox) -> None:
    """Die-together mode: systemd ends the rest of the group and starts the service anew."""
    daemon, worker = main_pid(running), worker_runs(running)
    running.run("systemctl", "kill", "--kill-who=main", "--signal=KILL", UNIT)

    def replaced() -> bool:
        return main_pid(running) not in {0, daemon} and sleepers(running) not in ([], [worker])

    wait_for(replaced, 40, "the service is back with a new worker")
    assert worker_runs(running) != worker


def test_a_daemon_that_stands_still_is_replaced(box: SystemdBox) -> None:
    """The watchdog is fed by the verdict loop, so a loop that stands still is found out."""
    with dropped_in(box, "WatchdogSec=2s", "TimeoutAbortSec=1s", "RestartSec=100ms"):
        box.run("systemctl", "start", UNIT)
        daemon = main_pid(box)
        worker_runs(box)
        box.run("kill", "-STOP", str(daemon))
        wait_for(lambda: main_pid(box) not in {0, daemon}, 40, "another daemon runs")
        worker_runs(box)
        assert box.show(UNIT, "NRestarts")["NRestarts"] == "1"


def test_o_sysd_1_a_grace_longer_than_the_stop_timeout_is_kept(box: SystemdBox) -> None:
    """The daemon asks systemd for the time that its workers may take."""
    (box.share / "draining.py").write_text(DRAINING, encoding="utf-8")
    write(box, CONFIG, SLOW_TO_STOP)
    try:
        with dropped_in(box, "TimeoutStopSec=1s"):
            box.run("systemctl", "start", UNIT)
            ready = ("test", "-e", "/var/lib/stepwarden/ready")
            wait_for(lambda: box.run(*ready, check=False).returncode == 0, 20, "it is up")
            box.run("systemctl", "stop", UNIT)
            assert box.show(UNIT, "Result")["Result"] == "success"
            box.run("test", "-e", "/var/lib/stepwarden/drained")
    finally:
        write(box, CONFIG, YAML)


def test_o_sysd_3_a_config_error_ends_it_for_good(box: SystemdBox) -> None:
    write(box, CONFIG, "workers: [not, a, mapping]\n")
    try:
        assert box.run("systemctl", "start", UNIT, check=False).returncode != 0
        shown = box.show(UNIT, "ActiveState", "Result", "ExecMainStatus", "NRestarts")
        assert shown == {
            "ActiveState": "failed",
            "Result": "exit-code",
            "ExecMainStatus": "78",
            "NRestarts": "0",
        }
    finally:
        write(box, CONFIG, YAML)
        box.run("systemctl", "reset-failed", UNIT)
