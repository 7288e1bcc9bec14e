"""Quotas and pressure of control groups and of the host: recorded files, and this kernel's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from stepwarden.core.facts import Pressure, Stall, Throttling
from stepwarden.edge import pressure
from stepwarden.edge.pressure import PressurePlaces, group_pressure, host_pressure, places_of

PSI = "some avg10=1.00 avg60=2.00 avg300=3.00 total=1500000\nfull avg10=0.00 total=500000\n"


def _group(folder: Path, stat: str) -> Path:
    folder.mkdir()
    (folder / "cpu.stat").write_text(stat)
    return folder


def test_a_group_of_version_2(tmp_path: Path) -> None:
    folder = _group(tmp_path / "a", "usage_usec 5\nnr_periods 10\nnr_throttled 4\n")
    with (folder / "cpu.stat").open("a") as file:
        file.write("throttled_usec 2500000\n")
    (folder / "cpu.pressure").write_text(PSI)
    (folder / "memory.pressure").write_text("some avg10=0.00 total=7\n")
    found = group_pressure(PressurePlaces(folder, (folder,)))
    assert found.cpu == Stall(1.5, 0.5)
    assert found.memory == Stall(7e-6, None)
    assert found.io is None
    assert found.quotas == {str(folder): Throttling(10, 4, 2.5)}


def test_a_group_of_version_1_counts_nanoseconds(tmp_path: Path) -> None:
    folder = _group(tmp_path / "a", "nr_periods 3\nnr_throttled 2\nthrottled_time 1500000000\n")
    found = group_pressure(PressurePlaces(None, (folder,)))
    assert found.quotas == {str(folder): Throttling(3, 2, 1.5)}
    assert found.cpu is None


def test_no_quota_is_none_and_not_zero(tmp_path: Path) -> None:
    folder = _group(tmp_path / "a", "usage_usec 5\n")
    assert group_pressure(PressurePlaces(folder, (folder, tmp_path / "gone"))).quotas is None
    assert group_pressure(PressurePlaces()).quotas is None


@pytest.mark.parametrize("text", ["", "some\n", "some total=x\n", "full total=1\n", "\n\n"])
def test_files_that_make_no_sense_are_unknown(tmp_path: Path, text: str) -> None:
    (tmp_path / "cpu").write_text(text)
    assert host_pressure(tmp_path).cpu is None


def test_of_this_process_and_this_host() -> None:
    places = places_of(os.getpid())
    found = group_pressure(places)
    assert found.quotas is None or all(each.seconds >= 0.0 for each in found.quotas.values())
    host = host_pressure()
    if Path("/proc/pressure/cpu").exists() and host.cpu is not None:
        assert host.cpu.some > 0.0
    assert host.quotas is None


def test_a_process_that_is_gone_has_no_places(monkeypatch: pytest.MonkeyPatch) -> None:
    assert places_of(0) == PressurePlaces()
    monkeypatch.setattr(pressure, "_folder", lambda _pid, _controller: None)
    assert group_pressure(places_of(os.getpid())) == Pressure()
