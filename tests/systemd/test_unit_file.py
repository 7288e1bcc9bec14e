"""What the shipped unit promises, read from the file; see test_real_systemd.py for it running."""

from __future__ import annotations

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


@pytest.mark.parametrize(
    "setting",
    [
        "PrivateDevices",
        "ProtectClock",
        "DeviceAllow",
        "MemoryDenyWriteExecute",
        "PrivateTmp",
        "ProtectHome",
        "RestrictNamespaces",
        "ProtectControlGroups",
        "ProtectProc",
        "PrivateUsers",
    ],
)
def test_no_sandbox_setting_takes_from_workers_what_engines_need(
    service: dict[str, str], setting: str
) -> None:
    assert setting not in service
