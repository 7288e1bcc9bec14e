"""Units of workers as control groups alone show them; plain folders stand in for groups here."""

from __future__ import annotations

from pathlib import Path

from stepwarden.edge.cgroup import Cgroup
from stepwarden.edge.unit_groups import living_units
from stepwarden.edge.unit_names import slice_of, unit_name


def group(top: Path, incarnation: str, populated: int) -> Path:
    unit = unit_name(incarnation)
    path = top / "stepwarden-w.slice" / slice_of(unit) / unit
    path.mkdir(parents=True)
    (path / "cgroup.events").write_text(f"populated {populated}\nfrozen 0\n")
    return path


def test_units_with_processes_are_seen_and_others_are_not(tmp_path: Path) -> None:
    lives = group(tmp_path, "my worker.7.00ab", 1)
    group(tmp_path, "w.3.00cd", 0)
    (tmp_path / "other.service").mkdir()
    ((worker, found),) = living_units(Cgroup(tmp_path)).values()
    assert (worker, found.path) == ("my worker", lives)
    assert list(living_units(Cgroup(tmp_path))) == ["my worker.7.00ab"]
