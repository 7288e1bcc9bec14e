"""What the shipped unit promises, read from the file; see test_real_systemd.py for it running."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from stepwarden.errors import ExitCode

UNIT = Path(__file__).resolve().parents[2] / "systemd" / "stepwarden.service"


@pytest.fixture(scope="module")
def service() -> dict[str, str]:
    """The assignments of the unit, comments left out; the last one of a name wins."""
    lines = [line for line in UNIT.read_text().splitlines() if "=" in line and line[0] != "#"]
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def test_o_sysd_3_a_config_error_is_not_tried_again(service: dict[str, str]) -> None:
    codes = {int(code) for code in service["RestartPreventExitStatus"].split()}
    assert codes == {ExitCode.USAGE, ExitCode.CONFIG}


def test_o_sysd_1_what_workers_need_outlives_the_daemon(service: dict[str, str]) -> None:
    """Sockets' directory, pages, invitations; workers of other users pass through it."""
    assert service["RuntimeDirectoryPreserve"] == "yes"
    assert service["RuntimeDirectoryMode"] == "0755"


def test_it_runs_as_root_without_a_drop_in(service: dict[str, str]) -> None:
    assert "User" not in service
    assert "CAP_SYS_ADMIN" not in UNIT.read_text()


def test_o_sysd_1_systemd_waits_longer_than_the_default_grace(service: dict[str, str]) -> None:
    assert service["KillMode"] == "mixed"
    margin = 30.0
    grace = 30.0
    assert float(service["TimeoutStopSec"].removesuffix("s")) >= grace + margin


def test_o_sysd_2_one_workers_memory_is_not_the_services_end(service: dict[str, str]) -> None:
    assert service["OOMPolicy"] == "continue"
    assert int(service["OOMScoreAdjust"]) < 0


@pytest.mark.parametrize("setting", ["ProtectControlGroups", "ProtectProc", "PrivateUsers"])
def test_the_sandbox_leaves_the_daemon_its_view_of_the_workers(
    service: dict[str, str], setting: str
) -> None:
    assert setting not in service
    assert "@debug" not in service["SystemCallFilter"]  # ptrace is in there
    assert service["Delegate"] == "yes"


def exposure(folder: Path, *drop_ins: str) -> float:
    """What systemd-analyze makes of the unit with these drop-ins; ends with 1 above 4.0."""
    units = folder / "etc/systemd/system"
    (units / f"{UNIT.name}.d").mkdir(parents=True, exist_ok=True)
    # The program has to be there, and this one is anywhere.
    text = UNIT.read_text().replace("=stepwarden ", "=/bin/sh ")
    (units / UNIT.name).write_text(text)
    for name in drop_ins:
        shutil.copy(UNIT.parent / f"{UNIT.name}.d" / f"{name}.conf", units / f"{UNIT.name}.d")
    words = ["systemd-analyze", "security", "--offline=true", "--threshold=40", "--no-pager"]
    done = subprocess.run(
        [*words, f"--root={folder}", UNIT.name], capture_output=True, text=True, check=False
    )
    (found,) = re.findall(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert (done.returncode == 0) == (float(found) <= 4.0)
    return float(found)


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze")
def test_how_exposed_the_service_is(tmp_path: Path) -> None:
    """Strict for the daemon; the drop-in gives spawned workers what engines need."""
    assert exposure(tmp_path / "shipped") <= 4.0
    assert exposure(tmp_path / "spawn", "spawn") <= 5.5
    assert exposure(tmp_path / "user", "spawn", "user") <= 4.0
    assert exposure(tmp_path / "units", "units") <= 3.0


def test_the_drop_in_for_spawned_workers_takes_back_what_an_event_warns_of() -> None:
    """What `unit_sandbox` looks for in the shipped unit is undone there, setting by setting."""
    text = (UNIT.parent / f"{UNIT.name}.d" / "spawn.conf").read_text()
    for line in ("DevicePolicy=auto", "DeviceAllow=", "ProtectClock=no", "ProtectHome=no"):
        assert f"\n{line}\n" in text
    assert "\nRestrictNamespaces=no\n" in text
    assert "@resources" not in text
