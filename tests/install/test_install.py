"""`stepwarden install --root DIR`: what lies there afterwards, and what it leaves alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from stepwarden.cli.main import main
from stepwarden.config import load
from stepwarden.errors import ExitCode
from stepwarden.install.lay import State, drift
from stepwarden.install.stamp import body, read_stamp, stamped
from stepwarden.install.ways import MODES, Place, Way, command_line, pieces, this_program

UNIT = "etc/systemd/system/stepwarden.service"
DROP_INS = f"{UNIT}.d"
CONFIG = "etc/stepwarden/stepwarden.yaml"
PROGRAM = ("/opt/stepwarden/bin/stepwarden",)
OF_ALL = {UNIT, CONFIG, "etc/tmpfiles.d/stepwarden.conf"}
OF_MODE = {
    "root": set(),
    "spawn": {f"{DROP_INS}/spawn.conf"},
    "user": {f"{DROP_INS}/spawn.conf", f"{DROP_INS}/user.conf", "etc/sysusers.d/stepwarden.conf"},
    "units": {
        f"{DROP_INS}/units.conf",
        "etc/sysusers.d/stepwarden.conf",
        "etc/sysusers.d/stepwarden-worker.conf",
        "etc/systemd/system/stepwarden-worker@.service",
        "etc/polkit-1/rules.d/50-stepwarden.rules",
    },
}


def install(root: Path, *words: str) -> int:
    return main(["install", "--root", str(root), "--exec", PROGRAM[0], *words])


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


@pytest.mark.parametrize("mode", MODES)
def test_each_mode_lays_down_its_own_files(tmp_path: Path, mode: str) -> None:
    os.umask(old := os.umask(0o077))
    try:
        os.umask(0o077)
        assert install(tmp_path, "--mode", mode) == 0
    finally:
        os.umask(old)
    assert files(tmp_path) == OF_ALL | OF_MODE[mode]
    for name in files(tmp_path):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o644
        assert (tmp_path / name).parent.stat().st_mode & 0o777 == 0o755
    text = (tmp_path / UNIT).read_text()
    assert f"\nExecStart={PROGRAM[0]} run /etc/stepwarden/stepwarden.yaml\n" in text
    assert f"\nExecReload={PROGRAM[0]} reload --socket %t/stepwarden/admin.sock\n" in text


@pytest.mark.parametrize("mode", MODES)
def test_going_from_one_mode_to_another_leaves_nothing_of_it(tmp_path: Path, mode: str) -> None:
    for before in MODES:
        install(tmp_path, "--mode", before)
        assert install(tmp_path, "--mode", mode) == 0
        assert files(tmp_path) == OF_ALL | OF_MODE[mode]


def test_again_it_is_the_same_and_keeps_its_mode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, "--mode", "units", "--user", "warden")
    before = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    capsys.readouterr()
    assert install(tmp_path) == 0
    said = capsys.readouterr().out
    assert "mode units" in said
    assert "writes" not in said
    assert "replaces" not in said
    assert {name: (tmp_path / name).read_bytes() for name in files(tmp_path)} == before


def test_a_dry_run_does_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert install(tmp_path, "--dry-run", "--mode", "units") == 0
    assert files(tmp_path) == set()
    assert capsys.readouterr().out.count("would write") == len(OF_ALL | OF_MODE["units"])
    install(tmp_path)
    assert install(tmp_path, "--dry-run", "--uninstall") == 0
    assert files(tmp_path) == OF_ALL


def test_the_configuration_is_never_touched(tmp_path: Path) -> None:
    config = tmp_path / CONFIG
    config.parent.mkdir(parents=True)
    config.write_text("mine\n")
    for words in ([], ["--force"], ["--uninstall"]):
        install(tmp_path, *words)
        assert config.read_text() == "mine\n"


def test_the_example_can_be_used(tmp_path: Path) -> None:
    install(tmp_path)
    config = load(tmp_path / CONFIG, {})
    assert config.warnings == ()


def test_an_edited_file_is_left_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path)
    unit = tmp_path / UNIT
    unit.write_text(unit.read_text() + "\n[Unit]\nDocumentation=https://wiki.example\n")
    assert install(tmp_path) == ExitCode.ACTION_FAILED
    assert f"LEAVES {unit}: it was edited" in capsys.readouterr().out
    assert install(tmp_path, "--uninstall") == ExitCode.ACTION_FAILED
    assert unit.exists()
    assert install(tmp_path, "--force") == 0
    assert "wiki.example" not in unit.read_text()


def test_what_something_else_laid_down_is_left(tmp_path: Path) -> None:
    unit = tmp_path / UNIT
    unit.parent.mkdir(parents=True)
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    assert install(tmp_path) == ExitCode.ACTION_FAILED
    assert unit.read_text() == "[Service]\nExecStart=/bin/true\n"


def test_a_drop_in_that_was_copied_by_hand_stays(tmp_path: Path) -> None:
    install(tmp_path, "--mode", "spawn")
    drop_in = tmp_path / DROP_INS / "spawn.conf"
    drop_in.write_text(body(drop_in.read_text()))
    assert install(tmp_path, "--mode", "root") == ExitCode.ACTION_FAILED
    assert drop_in.exists()
    assert install(tmp_path, "--mode", "spawn") == 0


def test_an_older_version_is_replaced(tmp_path: Path) -> None:
    unit = tmp_path / UNIT
    unit.parent.mkdir(parents=True)
    unit.write_text(stamped("[Service]\nExecStart=/old\n", "#", "root", "stepwarden"))
    assert install(tmp_path) == 0
    assert "ExecStart=/opt/stepwarden" in unit.read_text()


def test_an_uninstallation_takes_all_but_the_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, "--mode", "units")
    assert install(tmp_path, "--uninstall") == 0
    assert "left to do, on the host itself: systemctl disable" in capsys.readouterr().out
    assert files(tmp_path) == {CONFIG}
    assert not (tmp_path / DROP_INS).exists()


def test_a_package_has_its_own_directories(tmp_path: Path) -> None:
    install(tmp_path, "--mode", "units", "--prefix", "/usr")
    assert files(tmp_path) == {
        "etc/stepwarden/stepwarden.yaml",
        "usr/lib/systemd/system/stepwarden.service",
        "usr/lib/systemd/system/stepwarden.service.d/units.conf",
        "usr/lib/systemd/system/stepwarden-worker@.service",
        "usr/lib/sysusers.d/stepwarden.conf",
        "usr/lib/sysusers.d/stepwarden-worker.conf",
        "usr/lib/tmpfiles.d/stepwarden.conf",
        "usr/share/polkit-1/rules.d/50-stepwarden.rules",
    }


def test_another_user_is_named_everywhere(tmp_path: Path) -> None:
    install(tmp_path, "--mode", "units", "--user", "warden")
    assert "\nUser=warden\nGroup=warden\n" in (tmp_path / DROP_INS / "units.conf").read_text()
    assert "\nu warden -" in (tmp_path / "etc/sysusers.d/stepwarden.conf").read_text()
    rule = (tmp_path / "etc/polkit-1/rules.d/50-stepwarden.rules").read_text()
    assert 'subject.user == "warden"' in rule
    worker = (tmp_path / "etc/systemd/system/stepwarden-worker@.service").read_text()
    assert "\nUser=stepwarden-worker\n" in worker
    directories = (tmp_path / "etc/tmpfiles.d/stepwarden.conf").read_text()
    assert "d /run/stepwarden 0755 warden warden -" in directories


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--user", "warden"], "with root the daemon is root"),
        (["--mode", "user", "--user", "No Name"], "is no name for a user"),
        (["--mode", "user", "--user", 'x"||1||"'], "is no name for a user"),
        (["--prefix", "usr"], "is not absolute"),
        (["--exec", "stepwarden"], "is not absolute"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["install", "--root", str(tmp_path), *words]) == ExitCode.USAGE
    assert said in capsys.readouterr().err
    assert files(tmp_path) == set()


def test_a_directory_that_cannot_be_made_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "etc").write_text("a file")
    assert install(tmp_path) == ExitCode.INTERNAL
    assert "cannot write" in capsys.readouterr().err


def test_drift_is_found(tmp_path: Path) -> None:
    place = Place(tmp_path)
    assert drift(place, PROGRAM) == []
    install(tmp_path, "--mode", "spawn")
    assert {found.state for found in drift(place, PROGRAM)} == {State.SAME, State.KEPT}
    moved = {found.piece.path.name: found.state for found in drift(place, ("/elsewhere",))}
    assert moved["stepwarden.service"] is State.OLDER
    (tmp_path / DROP_INS / "spawn.conf").unlink()
    (tmp_path / "etc/tmpfiles.d/stepwarden.conf").write_text("# mine\n")
    now = {found.piece.path.name: found.state for found in drift(place, PROGRAM)}
    assert now["spawn.conf"] is State.MISSING
    assert now["stepwarden.conf"] is State.FOREIGN


def test_a_stamp_is_read_back() -> None:
    text = stamped("[Unit]\n", "#", "user", "warden")
    stamp = read_stamp(text)
    assert stamp is not None
    assert (stamp.mode, stamp.user, stamp.intact) == ("user", "warden", True)
    assert body(text) == "[Unit]\n"
    edited = read_stamp(text + "#\n")
    assert edited is not None
    assert not edited.intact
    assert read_stamp("[Unit]\n") is None


def test_words_of_a_command_line_as_systemd_reads_them() -> None:
    assert command_line(("/opt/a b/100%/x", "$y", 'q"\\')) == '"/opt/a b/100%%/x" $$y "q\\"\\\\"'


def test_the_program_is_this_installation() -> None:
    program = this_program()
    assert Path(program[0]).is_absolute()
    assert program[0] == sys.executable or Path(program[0]).parent == Path(sys.executable).parent


@pytest.mark.parametrize("mode", MODES)
def test_every_file_of_a_mode_is_shipped(mode: str) -> None:
    assert all(piece.text for piece in pieces(Way(mode, "stepwarden", PROGRAM), Place()))
