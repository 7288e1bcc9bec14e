"""Sealed bundles: whole or absent, held against their seal, bounded in number and size."""

from __future__ import annotations

import errno
import io
import os
import signal
import stat
import subprocess
import sys
import tarfile
import textwrap
from pathlib import Path

import pytest
from stepwarden.edge import bundle

HEAD = {"kind": "dead", "worker": "w", "unix": 5.0}


def name_of(number: int) -> str:
    return f"20260102T0304{number:02}Z-w-1-dead-{number:04x}"


def write(directory: Path, number: int = 1, size: int = 10) -> bundle.Summary:
    members = {"incident.json": b"{}", "output.txt": os.urandom(size)}
    return bundle.write_bundle(directory, name_of(number), HEAD, members, 1)


def test_what_was_sealed_is_read_back_and_holds(tmp_path: Path) -> None:
    written = write(tmp_path / "incidents")
    found = bundle.read_bundle(tmp_path / "incidents", name_of(1))
    assert found.faults == ()
    assert found.summary == written
    assert set(found.members) == {"incident.json", "output.txt"}
    (listed,) = bundle.summaries(tmp_path / "incidents")
    assert listed == written


def test_only_its_owner_reads_it_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write(tmp_path / "incidents")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "incidents").stat().st_mode) == 0o700
    (path,) = (tmp_path / "incidents").iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def repacked(path: Path, change: str) -> None:
    """The same archive with another member in it, or without one."""
    with tarfile.open(path, "r:gz") as archive:
        parts = [(e.name, archive.extractfile(e).read()) for e in archive]  # type: ignore[union-attr]
    parts = [(n, b"other" if (n, change) == ("output.txt", "changed") else d) for n, d in parts]
    parts = [(n, d) for n, d in parts if (n, change) != ("output.txt", "missing")]
    parts += [("more.txt", b"more")] if change == "added" else []
    with tarfile.open(path, "w:gz") as archive:
        for name, data in parts:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))


@pytest.mark.parametrize("change", ["changed", "missing", "added"])
def test_a_member_that_is_not_what_was_sealed_is_named(tmp_path: Path, change: str) -> None:
    write(tmp_path)
    repacked(tmp_path / f"{name_of(1)}.tar.gz", change)
    (fault,) = bundle.read_bundle(tmp_path, name_of(1)).faults
    assert change in fault


@pytest.mark.parametrize("raw", [b"", b"no archive", b"\x1f\x8b\x08\x00garbage"])
def test_a_damaged_file_is_listed_with_its_damage(tmp_path: Path, raw: bytes) -> None:
    write(tmp_path, 2)
    (tmp_path / f"{name_of(1)}.tar.gz").write_bytes(raw)
    damaged, good = bundle.summaries(tmp_path)
    assert "cannot be read" in damaged.error
    assert good.error == ""
    with pytest.raises(bundle.BundleError):
        bundle.read_bundle(tmp_path, name_of(1))


@pytest.mark.parametrize("name", ["../../etc/passwd", "", ".hidden", "a/b", "x" * 300])
def test_no_name_leads_out_of_the_directory(tmp_path: Path, name: str) -> None:
    with pytest.raises(bundle.BundleError, match="there is no incident"):
        bundle.raw_bundle(tmp_path, name)


def test_what_does_not_fit_is_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "MAX_BUNDLE_BYTES", 100)
    members = {"a": b"1" * 60, "b": b"2" * 60, "c": b"3" * 30}
    bundle.write_bundle(tmp_path, name_of(1), HEAD, members, 1)
    found = bundle.read_bundle(tmp_path, name_of(1))
    assert set(found.members) == {"a", "c"}
    assert found.faults == ()


def test_the_oldest_go_by_number_and_by_size_and_the_newest_stays(tmp_path: Path) -> None:
    for number in range(6):
        write(tmp_path, number, size=5000)
    assert bundle.retain(tmp_path, 4, 1 << 30) == 2
    assert bundle.names(tmp_path) == [name_of(n) for n in (2, 3, 4, 5)]
    assert bundle.retain(tmp_path, 4, 12_000) == 2
    assert bundle.retain(tmp_path, 4, 1) == 1
    assert bundle.names(tmp_path) == [name_of(5)]


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_be_made_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"directory|exists"):
        write(tmp_path / "file" / "incidents")


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from stepwarden.edge import bundle
    at = sys.argv[2]
    real = getattr(os, at)
    def killed(*args, **kwargs):
        os.kill(os.getpid(), signal.SIGKILL)
    setattr(os, at, killed)
    bundle.write_bundle(Path(sys.argv[1]), "20260102T030401Z-w-1-dead-0001", {}, {"a": b"1"}, 1)
"""


@pytest.mark.parametrize("at", ["fsync", "rename"])
def test_a_kill_in_the_middle_leaves_nothing_that_is_listed_and_is_swept(
    tmp_path: Path, at: str
) -> None:
    program = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path), at]
    assert subprocess.run(program, check=False).returncode == -signal.SIGKILL
    assert bundle.names(tmp_path) == []
    assert bundle.summaries(tmp_path) == []
    assert len(list(tmp_path.iterdir())) == 1
    write(tmp_path, 2)
    assert bundle.sweep(tmp_path) == 1
    assert bundle.names(tmp_path) == [name_of(2)]


def test_a_directory_that_is_not_there_holds_no_incident(tmp_path: Path) -> None:
    assert bundle.summaries(tmp_path / "nowhere") == []
    assert bundle.sweep(tmp_path / "nowhere") == 0
