"""O-SYSD-1: what becomes of workers when the service is restarted, stopped, killed or upgraded."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest
from support.box_wheel import install_package
from support.daemon_box import CREW, PYTHON, UNIT, DaemonBox, booted, box_folder, daemon_box
from support.systemd_init import SHARE
from support.waiting import wait_for

pytestmark = [pytest.mark.systemd, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def box() -> Iterator[DaemonBox]:
    with daemon_box() as made:
        yield made


@pytest.fixture
def crew(box: DaemonBox) -> Iterator[DaemonBox]:
    """Two workers in transient units, each with a child in a session of its own."""
    with box.serving(CREW % "auto"):
        box.healthy("one", "two")
        assert len(box.processes()) == 5
        yield box


def lives_on(box: DaemonBox, pids: dict[str, int], processes: set[int]) -> None:
    """The same processes, adopted, and HEALTHY again; nothing beside them."""
    assert box.healthy("one", "two") == pids
    assert box.processes() == processes
    assert len(box.transient()) == 2


def test_o_sysd_1_a_restart_leaves_workers_alone(crew: DaemonBox) -> None:
    pids, processes, before = crew.healthy("one", "two"), crew.processes(), crew.main_pid()
    since = crew.now()
    crew.run("systemctl", "restart", UNIT)
    assert crew.main_pid() != before
    lives_on(crew, pids, processes)
    assert "left-over process" not in crew.journal("--since", since)
    assert {worker["deaths"] for worker in crew.workers().values()} == {0}


def test_o_sysd_1_a_killed_daemon_leaves_workers_alone(crew: DaemonBox) -> None:
    pids, processes = crew.healthy("one", "two"), crew.processes()
    for _ in range(3):
        crew.kill()
        lives_on(crew, pids, processes)


def test_o_sysd_1_a_stop_leaves_nothing(crew: DaemonBox) -> None:
    (crew.share / "drained").unlink(missing_ok=True)
    crew.run("systemctl", "stop", UNIT)
    assert crew.show(UNIT, "Result", "ControlGroup") == {"Result": "success", "ControlGroup": ""}
    assert crew.processes() == set()
    assert crew.transient() == []
    assert crew.run("systemd-cgls", "/stepwarden.slice", check=False).stdout.count("sleep") == 0
    assert (crew.share / "drained").read_text() == "in order"
    assert crew.run("ls", "/run/stepwarden/pages", check=False).stdout == ""


def test_o_sysd_1_an_upgrade_leaves_workers_alone(crew: DaemonBox) -> None:
    """The files of the running daemon go, others come, and the service is restarted."""
    pids, processes, since = crew.healthy("one", "two"), crew.processes(), crew.now()
    crew.run(PYTHON, "-m", "pip", "uninstall", "--yes", "stepwarden")
    install_package(crew.share)
    (package,) = (crew.share / "venv/lib").glob("python3*/site-packages/stepwarden/__init__.py")
    text = package.read_text(encoding="utf-8").replace('__version__ = "', '__version__ = "99.')
    package.unlink()
    package.write_text(text, encoding="utf-8")
    crew.run("systemctl", "restart", UNIT)
    lives_on(crew, pids, processes)
    said = "stepwarden 99."
    wait_for(lambda: said in crew.journal("--since", since), 20, "the new version says its name")


def test_o_sysd_1_on_exit_stop_ends_workers_at_a_restart(box: DaemonBox) -> None:
    with box.serving((CREW % "auto").replace("supervisor:\n", "supervisor:\n  on_exit: stop\n")):
        pids = box.healthy("one", "two")
        processes = box.processes()
        box.run("systemctl", "restart", UNIT)
        after = box.healthy("one", "two")
        assert not set(after.values()) & set(pids.values())
        assert not box.processes() & processes
        assert len(box.processes()) == 5


def test_o_sysd_1_on_exit_leave_leaves_workers_at_a_stop(box: DaemonBox) -> None:
    with box.serving((CREW % "auto").replace("supervisor:\n", "supervisor:\n  on_exit: leave\n")):
        pids, processes = box.healthy("one", "two"), box.processes()
        box.run("systemctl", "stop", UNIT)
        assert box.show(UNIT, "Result")["Result"] == "success"
        assert box.processes() == processes
        box.run("systemctl", "start", UNIT)
        lives_on(box, pids, processes)
        box.configure(CREW % "auto")
        box.run("systemctl", "restart", UNIT)
    assert box.processes() == set()


def test_o_sysd_1_what_the_operator_stopped_stays_so(crew: DaemonBox) -> None:
    crew.cli("stop", "two")
    pid = crew.healthy("one")["one"]
    crew.run("systemctl", "restart", UNIT)
    assert crew.healthy("one") == {"one": pid}
    crew.kill()
    assert crew.healthy("one") == {"one": pid}
    assert crew.workers()["two"]["state"] == "STOPPED"
    assert len(crew.transient()) == 1


KEPT = f"state_dir: {SHARE}/state"


def incarnations(box: DaemonBox) -> dict[str, int]:
    return {name: int(worker["incarnation"]) for name, worker in box.workers().items()}


@pytest.mark.parametrize("gently", [True, False])
def test_o_sysd_1_a_reboot_adopts_nothing(gently: bool) -> None:
    """Powered off with every grace, or cut off; the state directory stays."""
    yaml = (CREW % "auto").replace("supervisor:\n", f"supervisor:\n  {KEPT}\n")
    # A box's boot id lies over the machine's, and this setting would lay the machine's over it.
    own_boot = ("ProtectKernelTunables=no",)
    with box_folder() as folder:
        with booted(folder) as first:
            first.drop_in(*own_boot)
            first.configure(yaml)
            first.run("systemctl", "start", UNIT)
            first.healthy("one", "two")
            first.cli("stop", "two")
            before = incarnations(first)
            drained = first.share / "drained"
            if not gently:
                os.kill(first.box.init, signal.SIGKILL)
        assert drained.exists() == gently
        with booted(folder) as second:
            assert second.processes() == set()
            second.drop_in(*own_boot)
            second.configure(yaml)
            second.run("systemctl", "start", UNIT)
            second.healthy("one")
            assert incarnations(second) == {"one": before["one"] + 1, "two": before["two"]}
            assert second.workers()["two"]["state"] == "STOPPED"
            assert len(second.processes()) == 2
            told = second.run("/usr/local/bin/stepwarden", "events", "--json").stdout
            sentences = [json.loads(line)["sentence"] for line in told.splitlines()]
            assert not [text for text in sentences if "taken over" in text]
            if gently:
                assert [text for text in sentences if "the host shuts down" in text]
                assert '"DEAD"' not in told
            starts = [text for text in sentences if " runs in stepwarden-one-" in text]
            assert len(starts) == 2
            second.run("systemctl", "stop", UNIT)
