"""Where the progress pages lie: a private directory on tmpfs, one directory per incarnation.

On a disk a page would cost writes for nothing and, on a full or frozen one, block the engine's
hot path. runtime_dir is used where it is tmpfs; in containers it often is not, then /dev/shm is.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

SHARED_MEMORY = Path("/dev/shm")
PAGE_HOME_MODE = 0o711
_MEMORY_FILESYSTEMS = frozenset({"tmpfs", "ramfs"})
_MOUNT_POINT = 4  # field of /proc/self/mountinfo


def filesystem_of(path: Path) -> str:
    """Type of the file system that holds `path`; "" where it cannot be told."""
    real = os.path.realpath(path)
    best, kind = "", ""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    for line in lines.splitlines():
        mount, _, source = line.partition(" - ")
        point = mount.split()[_MOUNT_POINT].replace("\\040", " ")
        inside = real == point or real.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, source.split()[0]
    return kind


def make_page_home(runtime_dir: Path) -> Path:
    """A directory of ours for the pages of all lives, each of which has a private one in it.

    Its mode is 0711: a worker that runs as another user has to pass through it, and nobody else
    can list it.
    """
    home = _home(runtime_dir)
    home.chmod(PAGE_HOME_MODE)
    return home


def _home(runtime_dir: Path) -> Path:
    if filesystem_of(runtime_dir) in _MEMORY_FILESYSTEMS:
        home = runtime_dir / "pages"
        home.mkdir(mode=0o700, exist_ok=True)
        return home
    if filesystem_of(SHARED_MEMORY) in _MEMORY_FILESYSTEMS and os.access(SHARED_MEMORY, os.W_OK):
        return Path(tempfile.mkdtemp(prefix="stepwarden-", dir=SHARED_MEMORY))
    # No tmpfs at all: the pages still work, a slow disk may slow the beat thread's tick.
    return Path(tempfile.mkdtemp(prefix="pages-", dir=runtime_dir))


def make_page_dir(directory: Path, uid: int | None = None, gid: int | None = None) -> None:
    """Create the directory (0700) of one incarnation's pages, of that user. Raises OSError."""
    directory.mkdir(mode=0o700)
    if uid is not None and gid is not None and (uid, gid) != (os.geteuid(), os.getegid()):
        os.chown(directory, uid, gid)


def remove_page_dir(directory: Path) -> None:
    """Take one incarnation's pages away. Never raises."""
    shutil.rmtree(directory, ignore_errors=True)


def remove_page_home(home: Path) -> None:
    """Take the home away if nothing is in it any more. Never raises."""
    with suppress(OSError):
        home.rmdir()


def note_page_home(note: Path, home: Path) -> None:
    """Write down the home of this daemon, so that the next one finds it after a crash.

    Homes that earlier daemons noted are taken away where they are empty by now; the others stay
    noted. Never raises: a state directory that takes no note stops nothing.
    """
    earlier = [path for path in _noted(note) if path != home]
    for path in earlier:
        remove_page_home(path)
    _write(note, [*(path for path in earlier if path.is_dir()), home])


def forget_page_home(note: Path, home: Path) -> None:
    """The home has been taken away; another daemon may have one of its name. Never raises."""
    _write(note, [path for path in _noted(note) if path != home])


def _noted(note: Path) -> list[Path]:
    try:
        lines = note.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
    return [Path(line) for line in lines if line.startswith("/")]


def _write(note: Path, homes: list[Path]) -> None:
    scratch = note.with_name(note.name + ".new")
    text = "".join(f"{home}\n" for home in homes)
    with suppress(OSError):
        scratch.write_text(text, encoding="utf-8", errors="surrogateescape")
        os.replace(scratch, note)
