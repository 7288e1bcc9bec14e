"""Workers of the real daemon in a real systemd: deaths, units of the operator's, tokens, output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.daemon_box import CONFIG, CREW, UNIT, DaemonBox, daemon_box
from support.systemd_init import SHARE
from support.waiting import wait_for

pytestmark = [pytest.mark.systemd, pytest.mark.timeout(300)]

ALONE = """\
defaults:
  restart: {{delay: 100ms, jitter: 0, limit: 50}}
workers:
  w: {{backend: cpu, agent: none, {worker}}}
"""
OWN = ("[Service]", "ExecStart=/bin/sh -c 'setsid sleep 100002 & exec sleep 100001'")
PRINTS = "while :; do head -c 20000 /dev/zero | tr '\\\\0' x; echo; sleep 0.05; done"


@pytest.fixture(scope="module")
def box() -> Iterator[DaemonBox]:
    with daemon_box() as made:
        yield made


def test_o_sysd_2_a_killed_worker_is_one_workers_death(box: DaemonBox) -> None:
    """SIGKILL stands in for the kernel here; stories/test_out_of_memory.py has the real one."""
    with box.serving(CREW % "auto"):
        pids, daemon = box.healthy("one", "two"), box.main_pid()
        box.run("kill", "-KILL", str(pids["one"]))
        box.until(lambda w: w["one"]["pid"] not in {None, pids["one"]}, "another life of it")
        after = box.healthy("one", "two")
        assert after["two"] == pids["two"]
        assert box.main_pid() == daemon
        assert len(box.processes()) == 5
        assert len(box.transient()) == 2
        one, two = box.workers()["one"], box.workers()["two"]
        assert (one["deaths"], two["deaths"]) == (1, 0)
        assert one["last_exit"] == "signal SIGKILL"


def test_a_transient_unit_that_somebody_stops_is_a_death(box: DaemonBox) -> None:
    with box.serving(CREW % "auto"):
        pids = box.healthy("one", "two")
        (unit,) = (name for name in box.transient() if "-one-" in name)
        box.run("systemctl", "stop", unit)
        box.until(lambda w: w["one"]["pid"] not in {None, pids["one"]}, "another life of it")
        assert box.healthy("one", "two")["two"] == pids["two"]
        assert len(box.processes()) == 5
        assert unit not in box.transient()


def test_how_a_worker_ended_while_no_daemon_ran_is_read_afterwards(box: DaemonBox) -> None:
    with box.serving(ALONE.format(worker="command: [/bin/sh, -c, 'sleep 100001; exit 7']")):
        pid = box.healthy("w")["w"]
        box.run("kill", "-STOP", str(box.main_pid()))
        box.run("pkill", "-f", "^sleep 100001")
        box.kill()
        box.until(lambda w: w.get("w", {}).get("pid") not in {None, pid}, "another life")
        assert "code 7" in box.workers()["w"]["last_exit"]
        assert box.workers()["w"]["deaths"] == 1


def test_a_unit_of_the_operators_is_a_worker(box: DaemonBox) -> None:
    box.unit("own.service", *OWN)
    with box.serving(ALONE.format(worker="unit: own.service")):
        first = box.healthy("w")["w"]
        assert first == int(box.show("own.service", "MainPID")["MainPID"])
        box.cli("restart", "w")
        second = box.healthy("w")["w"]
        assert second != first
        assert len(box.processes()) == 2
        box.run("kill", "-KILL", str(second))
        box.until(lambda w: w["w"]["pid"] not in {None, second}, "started again")
        third = box.healthy("w")["w"]
        assert len(box.processes()) == 2
        assert box.workers()["w"]["last_exit"] == "signal SIGKILL"
        box.kill()
        assert box.healthy("w") == {"w": third}
        box.run("systemctl", "restart", UNIT)
        assert box.healthy("w") == {"w": third}
        box.cli("stop", "w")
        assert box.show("own.service", "ActiveState")["ActiveState"] == "inactive"
        assert box.processes() == set()
        box.cli("start", "w")
        box.healthy("w")
        box.run("systemctl", "stop", UNIT)
        assert box.processes() == set()


def test_a_unit_that_runs_already_is_taken_as_it_is(box: DaemonBox) -> None:
    box.unit("own.service", *OWN)
    box.run("systemctl", "start", "own.service")
    pid = int(box.show("own.service", "MainPID")["MainPID"])
    with box.serving(ALONE.format(worker="unit: own.service")):
        assert box.healthy("w") == {"w": pid}
        assert len(box.processes()) == 2
    assert box.processes() == set()


def test_a_unit_that_restarts_itself_is_refused(box: DaemonBox) -> None:
    box.unit("own.service", *OWN, "Restart=always")
    fight = "own.service has Restart=always: two restarters would fight; set Restart=no there"
    with box.serving(ALONE.format(worker="unit: own.service")):
        said = box.cli("check", CONFIG, check=False)
        assert [line for line in said.splitlines() if fight in line]
        box.until(lambda w: fight in str(w["w"]["last_death"]), "the reason is told")
        assert box.processes() == set()


def test_no_other_user_can_read_a_token(box: DaemonBox) -> None:
    worker = "command: [/bin/sleep, '100001'], env: {SECRET: s3cret}"
    with box.serving(ALONE.format(worker=worker)):
        pid = box.healthy("w")["w"]
        environ = box.run("cat", f"/proc/{pid}/environ").stdout.split("\0")
        (token,) = (line for line in environ if line.startswith("STEPWARDEN_TOKEN="))
        assert "SECRET=s3cret" in environ
        assert not [line for line in environ if line.startswith(("NOTIFY_SOCKET", "WATCHDOG_"))]
        (unit,) = box.transient()
        other = ("setpriv", "--reuid=1", "--regid=1", "--clear-groups")
        shown = box.run(*other, "systemctl", "show", "--all", unit).stdout
        shown += box.run(*other, "cat", f"/run/systemd/transient/{unit}", check=False).stdout
        shown += box.journal()
        assert "EnvironmentFile" in shown
        assert token.partition("=")[2] not in shown
        assert "s3cret" not in shown
        assert box.run("ls", "/run/stepwarden/environments").stdout == ""
        assert box.run(*other, "cat", f"/proc/{pid}/environ", check=False).returncode == 1
        assert box.run(*other, "ls", "/var/lib/stepwarden", check=False).returncode == 2


def _beats(workers: dict[str, dict[str, Any]]) -> bool:
    (rank,) = workers["one"]["ranks"]
    return rank["beat_age_seconds"] is not None and rank["beat_age_seconds"] < 5


def test_a_worker_of_another_user_beats(box: DaemonBox) -> None:
    """It reaches its socket and its page through the daemon's directories."""
    yaml = (CREW % "auto").replace("one: {", "one: {user: nobody, ")
    (box.share / "drained").unlink(missing_ok=True)
    with box.serving(yaml):
        pid = box.healthy("one")["one"]
        assert box.run("ps", "-o", "user=", str(pid)).stdout.strip() == "nobody"
        box.kill()
        assert box.healthy("one") == {"one": pid}
        # Its page alone shows that it lives; the first beat may come a moment later.
        box.until(_beats, "its agent reaches the next daemon too")


def test_o_logs_1_output_goes_to_the_journal_of_its_unit(box: DaemonBox) -> None:
    worker = "command: [/bin/sh, -c, 'echo hello from w; exec sleep 100001']"
    with box.serving(ALONE.format(worker=worker)):
        box.healthy("w")
        (unit,) = box.transient()
        wait_for(lambda: "hello from w" in box.journal("-u", unit), 20, "it is in the journal")


def test_o_logs_1_appended_output_is_kept_over_lives(box: DaemonBox) -> None:
    worker = "command: [/bin/sh, -c, 'echo once; sleep 0.2'], output: {mode: append, path: %s}"
    path = box.share / "appended.log"
    with box.serving(ALONE.format(worker=worker % f"{SHARE}/appended.log")):
        wait_for(lambda: path.exists() and path.read_text().count("once") >= 3, 20, "three lives")


def test_o_logs_1_captured_output_keeps_its_size(box: DaemonBox) -> None:
    """Also after a restart of the daemon, which the worker does not notice."""
    settings = f"output: {{mode: capture, path: {SHARE}/captured/w, max_file: 64KiB, keep: 2}}"
    worker = f'command: [/bin/sh, -c, "{PRINTS}"], {settings}'
    folder = box.share / "captured/w"

    def rotated(times: int) -> bool:
        return len(list(folder.glob("current.log.*"))) >= times

    with box.serving(ALONE.format(worker=worker)):
        pid = box.healthy("w")["w"]
        wait_for(lambda: rotated(2), 30, "two former files")
        box.kill()
        assert box.healthy("w") == {"w": pid}
        newest = (folder / "current.log.1").stat().st_ino
        wait_for(lambda: (folder / "current.log.2").stat().st_ino == newest, 30, "it goes on")
        names = sorted(path.name for path in folder.iterdir())
        assert names == ["current.log", "current.log.1", "current.log.2"]
        assert (folder / "current.log").stat().st_size < 20_000_000
        assert box.workers()["w"]["deaths"] == 0


AS_NOBODY = ("User=nobody", "Group=nogroup", "CapabilityBoundingSet=")


def test_a_daemon_that_may_not_make_units_spawns(box: DaemonBox) -> None:
    with box.dropped_in(*AS_NOBODY), box.serving(CREW % "auto"):
        since = box.now()
        box.healthy("one", "two")
        assert box.transient() == []
        said = "runner auto means spawn here, workers are children of the daemon: polkit does not"
        told = box.run("/usr/local/bin/stepwarden", "events").stdout
        assert " ".join(told.split()).count(said) == 1
        assert box.journal("--since", since).count(said) <= 1
        assert said in " ".join(box.cli("status").split())
        box.run("systemctl", "stop", UNIT)
        assert box.processes() == set()


@pytest.mark.parametrize("place", ["supervisor", "workers.two"])
def test_a_daemon_that_may_not_make_units_says_so_where_it_must(box: DaemonBox, place: str) -> None:
    if place == "supervisor":
        yaml = CREW % "systemd"
    else:
        yaml = (CREW % "auto").replace("two: {", "two: {runner: systemd, ")
    box.configure(yaml)
    with box.dropped_in(*AS_NOBODY, "Restart=no"):
        assert box.run("systemctl", "start", UNIT, check=False).returncode != 0
        assert box.show(UNIT, "ExecMainStatus")["ExecMainStatus"] == "6"
        said = box.journal("-u", UNIT, "-n", "20").splitlines()
        (line,) = {line for line in said if f"{place}.runner is systemd" in line}
        assert "polkit does not allow" in line
    box.run("systemctl", "reset-failed", UNIT, check=False)


def test_supervision_goes_on_without_the_bus(box: DaemonBox) -> None:
    """It hangs: what dies is told, its start fails with the reason, and is tried again."""
    with box.serving((CREW % "auto").replace("{delay:", "{limit: 50, delay:")):
        pids = box.healthy("one", "two")
        bus = box.show("dbus.service", "MainPID")["MainPID"]
        box.run("kill", "-STOP", bus)
        try:
            box.run("kill", "-KILL", str(pids["one"]))
            box.until(lambda w: w["one"]["deaths"] >= 1, "its death is told")
            told = ("/usr/local/bin/stepwarden", "events", "--worker", "one")
            wait_for(lambda: "cannot start" in box.run(*told).stdout, 90, "why it does not start")
            assert box.workers()["two"]["state"] == "HEALTHY"
        finally:
            box.run("kill", "-CONT", bus)
        box.until(lambda w: w["one"]["pid"] not in {None, pids["one"]}, "another life of it")
        assert box.healthy("one", "two", limit=60)["two"] == pids["two"]
        wait_for(lambda: len(box.transient()) == 2, 40, "nothing is left of starts that failed")
        assert len(box.processes()) == 5


def test_a_bus_that_is_killed_is_found_again(box: DaemonBox) -> None:
    with box.serving(CREW % "auto"):
        pids, daemon = box.healthy("one", "two"), box.main_pid()
        box.run("systemctl", "kill", "--signal=KILL", "dbus.service")
        box.run("kill", "-KILL", str(pids["one"]))
        box.until(lambda w: w["one"]["pid"] not in {None, pids["one"]}, "another life of it")
        after = box.healthy("one", "two", limit=60)
        assert after["two"] == pids["two"]
        box.run("systemctl", "restart", UNIT)
        assert box.main_pid() != daemon
        assert box.healthy("one", "two") == after


def test_a_daemon_that_starts_while_the_bus_hangs_adopts(box: DaemonBox) -> None:
    with box.serving(CREW % "auto"):
        pids = box.healthy("one", "two")
        bus = box.show("dbus.service", "MainPID")["MainPID"]
        box.run("kill", "-STOP", bus)
        try:
            box.kill()
            assert box.healthy("one", "two") == pids
        finally:
            box.run("kill", "-CONT", bus)
        told = ("/usr/local/bin/stepwarden", "events")
        wait_for(lambda: "systemd answers now" in box.run(*told).stdout, 40, "it is heard again")
        box.run("kill", "-KILL", str(pids["one"]))
        box.until(lambda w: w["one"]["pid"] not in {None, pids["one"]}, "another life of it")
        box.healthy("one", "two")
        assert len(box.transient()) == 2


def test_o_proc_3_a_unit_that_nobody_knows_of_is_not_doubled(box: DaemonBox) -> None:
    """The state is lost, its environment says nothing, and the bus hangs."""
    worker = "command: [/usr/bin/env, -i, /bin/sleep, '100001']"
    with box.serving(ALONE.format(worker=worker)):
        pid = box.healthy("w")["w"]
        bus = box.show("dbus.service", "MainPID")["MainPID"]
        box.run("kill", "-STOP", bus)
        try:
            box.run("kill", "-STOP", str(box.main_pid()))
            box.run("rm", "-rf", "/var/lib/stepwarden", "/run/stepwarden")
            box.kill()
            box.until(lambda w: "waits for systemd" in w["w"]["held"], "it is held back")
            assert box.processes() == {pid}
        finally:
            box.run("kill", "-CONT", bus)
        assert box.healthy("w") == {"w": pid}
        assert box.processes() == {pid}
        assert len(box.transient()) == 1
