"""`stepwarden install` on a host with a real systemd, and the ways without root that it offers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.daemon_box import CONFIG, PYTHON, UNIT, DaemonBox, daemon_box
from support.systemd_init import SHARE

pytestmark = [
    pytest.mark.systemd,
    pytest.mark.timeout(300),
    pytest.mark.skipif(
        not Path("/usr/lib/polkit-1/polkitd").exists(),
        reason="there is no polkitd (Debian: polkitd)",
    ),
]

CAP_KILL = 1 << 5
WORKER = "stepwarden-worker@{}.service"
# The engine ignores the first signal, so that what the unit's stop leaves has to be killed by us.
STUBBORN = "#!/bin/sh\nsetsid sleep 100002 &\ntrap '' TERM\nsleep 100001; sleep 100001\n"
BEATING = f"#!/bin/sh\nexec {PYTHON} {SHARE}/beating.py /dev/null\n"
UNITS = """\
defaults: {restart: {delay: 100ms, jitter: 0}, stop: {grace: 1s}}
workers:
  w: {backend: cpu, agent: none, unit: "stepwarden-worker@w.service"}
  one: {backend: cpu, agent: required, unit: "stepwarden-worker@one.service"}
"""
SPAWNED = f"""\
workers:
  one: {{backend: cpu, agent: required, command: [{PYTHON}, {SHARE}/beating.py, /dev/null]}}
"""


@pytest.fixture(scope="module")
def box() -> Iterator[DaemonBox]:
    with daemon_box() as made:
        made.run("rm", f"/etc/systemd/system/{UNIT}")
        yield made


def install(box: DaemonBox, *words: str, check: bool = True) -> str:
    """Lay it down, and do what it says is left to do; what it says."""
    done = box.run(PYTHON, "-m", "stepwarden", "install", *words, check=check)
    box.run("systemd-sysusers")
    box.run("systemd-tmpfiles", "--create")
    box.run("systemctl", "daemon-reload")
    return done.stdout + done.stderr


def as_daemon(box: DaemonBox, *command: str) -> str:
    """A command as the daemon's user that has to fail; what it says."""
    own = ("setpriv", "--reuid=stepwarden", "--regid=stepwarden", "--init-groups")
    done = box.run(*own, *command, check=False)
    assert done.returncode != 0
    return done.stdout + done.stderr


def capabilities(box: DaemonBox, pid: int, name: str) -> int:
    (line,) = (
        line
        for line in box.run("cat", f"/proc/{pid}/status").stdout.splitlines()
        if line.startswith(f"{name}:")
    )
    return int(line.split()[1], 16)


def user_of(box: DaemonBox, pid: int) -> str:
    return box.run("ps", "-o", "user:32=", str(pid)).stdout.strip()


def test_from_nothing_to_a_service_that_serves(box: DaemonBox) -> None:
    """The steps that it names, and no other."""
    said = install(box)
    steps = said.partition("left to do:\n")[2].splitlines()
    assert "  systemctl enable --now stepwarden" in steps
    for step in steps:
        box.run(*step.split())
    try:
        assert box.show(UNIT, "ActiveState", "UnitFileState") == {
            "ActiveState": "active",
            "UnitFileState": "enabled",
        }
        assert box.workers()["example"]["state"] == "STOPPED"
        box.cli("start", "example")
        box.healthy("example")
        verify = ("systemd-analyze", "verify", "--recursive-errors=yes")
        assert box.run(*verify, f"/etc/systemd/system/{UNIT}").stderr == ""
        assert "has /etc/systemd/system" in install(box)
        box.run("systemctl", "restart", UNIT)
        box.healthy("example")
    finally:
        box.run("systemctl", "disable", "--now", UNIT)
    gone = install(box, "--uninstall")
    assert f"removes /etc/systemd/system/{UNIT}" in gone
    assert box.run("ls", CONFIG).stdout
    assert box.show(UNIT, "LoadState")["LoadState"] == "not-found"


def test_a_user_of_its_own_spawns_its_workers(box: DaemonBox) -> None:
    install(box, "--mode", "user")
    with box.serving(SPAWNED):
        pid = box.healthy("one")["one"]
        assert user_of(box, box.main_pid()) == user_of(box, pid) == "stepwarden"
        assert capabilities(box, box.main_pid(), "CapBnd") == 0
        assert capabilities(box, pid, "CapPrm") == 0
        assert box.transient() == []
        box.run("kill", "-KILL", str(pid))
        box.until(lambda w: w["one"]["pid"] not in {None, pid}, "another life of it")
        box.healthy("one")
        box.run("systemctl", "stop", UNIT)
        assert box.processes() == set()


@pytest.fixture
def units(box: DaemonBox) -> Iterator[DaemonBox]:
    """The daemon without root, and two units: one of another user, one of its own with an agent."""
    install(box, "--mode", "units")
    box.write("/etc/stepwarden/workers/w", STUBBORN, mode="755")
    box.write("/etc/stepwarden/workers/one", BEATING, mode="755")
    own = f"/run/systemd/system/{WORKER.format('one')}.d/user.conf"
    box.write(own, "[Service]\nUser=stepwarden\nGroup=stepwarden\n")
    box.run("systemctl", "daemon-reload")
    with box.serving(UNITS):
        yield box


def test_units_that_are_there_already_are_started_without_root(units: DaemonBox) -> None:
    pids = units.healthy("w", "one")
    assert user_of(units, units.main_pid()) == "stepwarden"
    assert user_of(units, pids["w"]) == "stepwarden-worker"
    assert capabilities(units, units.main_pid(), "CapBnd") == CAP_KILL
    assert capabilities(units, units.main_pid(), "CapEff") == CAP_KILL
    assert capabilities(units, pids["w"], "CapPrm") == 0
    # The agent of the unit found out who it is, and beats.
    (rank,) = units.workers()["one"]["ranks"]
    assert rank["beat_age_seconds"] is not None
    assert units.run("ls", "/run/stepwarden/environments").stdout == ""


def test_a_death_and_a_stop_need_no_root(units: DaemonBox) -> None:
    """The stubborn one outlives the grace: KILL comes from the daemon, which may by CAP_KILL."""
    pids = units.healthy("w", "one")
    units.run("kill", "-KILL", str(pids["w"]))
    units.until(lambda w: w["w"]["pid"] not in {None, pids["w"]}, "another life of it")
    assert units.workers()["w"]["last_exit"] == "signal SIGKILL"
    again = units.healthy("w", "one")
    assert again["one"] == pids["one"]
    units.kill()
    assert units.healthy("w", "one") == again
    units.cli("restart", "w")
    third = units.healthy("w")["w"]
    assert third != again["w"]
    assert "SIGKILL sent" in units.cli("events", "--worker", "w")
    units.cli("stop", "w")
    assert units.show(WORKER.format("w"), "MainPID")["MainPID"] == "0"
    units.run("systemctl", "stop", UNIT)
    assert units.processes() == set()


def test_the_rule_allows_nothing_else(units: DaemonBox) -> None:
    """No other unit, no other verb, and above all no transient unit, which could be root's."""
    asked = "--no-ask-password"
    worker = WORKER.format("w")
    refused = [
        ("systemctl", asked, "restart", "dbus.service"),
        ("systemctl", asked, "start", "stepwarden-workers.service"),
        ("systemctl", asked, "kill", worker),
        ("systemctl", asked, "reset-failed", worker),
        ("systemctl", asked, "set-property", "--runtime", worker, "User=root"),
        ("systemctl", asked, "daemon-reload"),
        ("systemd-run", asked, f"--unit={WORKER.format('new')}", "/bin/true"),
        ("systemd-run", asked, "/bin/true"),
    ]
    for command in refused:
        assert "authentication required" in as_daemon(units, *command)
    # Not even root makes a transient unit of a name that has a file.
    words = ("systemd-run", f"--unit={WORKER.format('new')}", "/bin/true")
    assert "has a fragment file" in units.run(*words, check=False).stderr


def test_an_edited_unit_is_left_alone(box: DaemonBox) -> None:
    install(box, "--mode", "root")
    unit = f"/etc/systemd/system/{UNIT}"
    box.run("sed", "-i", "s/^RestartSec=.*/RestartSec=7s/", unit)
    assert f"LEAVES {unit}: it was edited" in install(box, check=False)
    assert "RestartSec=7s" in box.run("cat", unit).stdout
    assert f"replaces {unit}" in install(box, "--force")
    assert "RestartSec=7s" not in box.run("cat", unit).stdout
