"""The shipped unit in a real systemd: starts, is watched, stops, and leaves nothing behind.

Workers are children of the daemon here (`runner: spawn`); see test_restarts_of_the_service.py for
those in units of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.box_wheel import SYSTEM_PYTHON
from support.daemon_box import CREW, PYTHON, UNIT, DaemonBox, daemon_box
from support.systemd_init import SHARE
from support.waiting import wait_for

pytestmark = [pytest.mark.systemd, pytest.mark.timeout(300)]

YAML = """\
supervisor:
  runner: spawn
  health: {listen: ["127.0.0.1:50051"]}
workers:
  sleeper:
    backend: cpu
    agent: none
    command: [/bin/sleep, "100001"]
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
supervisor: {{runner: %s}}
workers:
  drains:
    backend: cpu
    agent: none
    command: [{SYSTEM_PYTHON}, {SHARE}/draining.py]
    cwd: {SHARE}
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
def box() -> Iterator[DaemonBox]:
    with daemon_box() as made:
        yield made


@pytest.fixture
def running(box: DaemonBox) -> Iterator[DaemonBox]:
    """The unit, active; afterwards it is inactive again, whatever the test did."""
    with box.serving(YAML):
        yield box


def worker_runs(box: DaemonBox) -> int:
    """Wait until the worker is there; returns its pid."""
    wait_for(lambda: len(box.processes()) == 1, 20, "one worker runs")
    return box.processes().pop()


def test_the_unit_is_verified(box: DaemonBox) -> None:
    done = box.run(
        "systemd-analyze", "verify", "--recursive-errors=yes", f"/etc/systemd/system/{UNIT}"
    )
    assert done.stderr == ""


def test_o_sysd_3_active_when_it_serves(running: DaemonBox) -> None:
    shown = running.show(UNIT, "ActiveState", "SubState", "NotifyAccess", "WatchdogUSec")
    assert shown == {
        "ActiveState": "active",
        "SubState": "running",
        "NotifyAccess": "main",
        "WatchdogUSec": "10s",
    }
    answer = running.run(PYTHON, "-c", CHECK)
    assert answer.stdout == "SERVING\n"
    assert "worker" in running.show(UNIT, "StatusText")["StatusText"]


def test_o_sysd_3_the_notify_socket_stays_with_the_daemon(running: DaemonBox) -> None:
    environ = running.run("cat", f"/proc/{worker_runs(running)}/environ").stdout.split("\0")
    names = {entry.partition("=")[0] for entry in environ}
    assert "PATH" in names
    assert not names & {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}


def test_a_worker_is_no_late_victim_of_the_kernel(running: DaemonBox) -> None:
    """O-SYSD-2: the daemon is spared before its workers."""
    daemon = running.run("cat", f"/proc/{running.main_pid()}/oom_score_adj").stdout
    worker = running.run("cat", f"/proc/{worker_runs(running)}/oom_score_adj").stdout
    # Where the box may not raise a process above others (no CAP_SYS_RESOURCE), both are 0.
    assert int(daemon) in {-500, 0}
    assert int(worker) == 0


def test_the_loop_feeds_the_watchdog(running: DaemonBox) -> None:
    stamps = set()

    def several() -> bool:
        name = "WatchdogTimestampMonotonic"
        stamps.add(running.show(UNIT, name)[name])
        return len(stamps) >= 3

    wait_for(several, 20, "watchdog messages arrive")
    assert running.show(UNIT, "NRestarts")["NRestarts"] == "0"


@pytest.fixture
def crew(box: DaemonBox) -> Iterator[DaemonBox]:
    """Two spawned workers, each with a child in a session of its own."""
    with box.serving(CREW % "spawn"):
        box.healthy("one", "two")
        assert len(box.processes()) == 5
        (box.share / "drained").unlink(missing_ok=True)
        yield box


def replaced(box: DaemonBox, pids: dict[str, int], processes: set[int]) -> None:
    """Other workers are HEALTHY, and of the former ones nothing is left."""

    def others() -> bool:
        workers = box.workers().values()
        return [w["state"] for w in workers] == ["HEALTHY"] * 2 and not {
            w["pid"] for w in workers
        } & set(pids.values())

    wait_for(others, 40, "other workers are HEALTHY")
    now = box.processes()
    assert len(now) == 5
    assert not now & processes


def test_o_sysd_1_spawned_workers_a_stop_leaves_nothing(crew: DaemonBox) -> None:
    crew.run("systemctl", "stop", UNIT)
    shown = crew.show(UNIT, "ActiveState", "Result", "ControlGroup")
    assert shown == {"ActiveState": "inactive", "Result": "success", "ControlGroup": ""}
    assert crew.processes() == set()
    assert (crew.share / "drained").read_text() == "in order"
    assert crew.run("ls", "/run/stepwarden/pages", check=False).stdout == ""


def test_o_sysd_1_spawned_workers_a_restart_replaces_every_process(crew: DaemonBox) -> None:
    pids, processes, since = crew.healthy("one", "two"), crew.processes(), crew.now()
    crew.run("systemctl", "restart", UNIT)
    assert (crew.share / "drained").read_text() == "in order"
    replaced(crew, pids, processes)
    assert "left-over process" not in crew.journal("--since", since)


def test_o_sysd_1_spawned_workers_die_with_a_killed_daemon(crew: DaemonBox) -> None:
    """systemd ends the rest of the group and starts the service anew."""
    pids, processes, since = crew.healthy("one", "two"), crew.processes(), crew.now()
    crew.kill()
    replaced(crew, pids, processes)
    assert "left-over process" not in crew.journal("--since", since)


def test_a_daemon_that_stands_still_is_replaced(box: DaemonBox) -> None:
    """The watchdog is fed by the verdict loop, so a loop that stands still is found out."""
    with (
        box.dropped_in("WatchdogSec=2s", "TimeoutAbortSec=1s", "RestartSec=100ms"),
        box.serving(YAML),
    ):
        worker_runs(box)
        box.kill("STOP")
        worker_runs(box)
        assert box.show(UNIT, "NRestarts")["NRestarts"] == "1"


@pytest.mark.parametrize("runner", ["spawn", "systemd"])
def test_o_sysd_1_a_grace_longer_than_the_stop_timeout_is_kept(box: DaemonBox, runner: str) -> None:
    """The daemon asks systemd for the time that its workers may take."""
    (box.share / "draining.py").write_text(DRAINING, encoding="utf-8")
    for name in ("ready", "drained"):
        (box.share / name).unlink(missing_ok=True)
    with box.dropped_in("TimeoutStopSec=1s"), box.serving(SLOW_TO_STOP % runner):
        wait_for((box.share / "ready").exists, 20, "it is up")
        box.run("systemctl", "stop", UNIT)
        assert box.show(UNIT, "Result")["Result"] == "success"
        assert (box.share / "drained").exists()


def test_o_sysd_3_a_config_error_ends_it_for_good(box: DaemonBox) -> None:
    box.configure("workers: [not, a, mapping]\n")
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
        box.run("systemctl", "reset-failed", UNIT)
