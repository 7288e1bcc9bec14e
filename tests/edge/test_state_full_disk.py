"""O-STATE-1, O-RSTR-2: full, read-only and size-limited disks, real ones where we may mount."""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_COMMON = """
import os, resource, subprocess, sys
from pathlib import Path
from stepwarden.edge import state_writer
from support.state import *
from support.waiting import wait_for
state_writer.RETRY_SECONDS = 0.05
home = Path(sys.argv[1])
state = home / "state"
"""

# Fills a small disk, notes, dies by SIGKILL, and comes back twice: still full, then with room.
_FULL = (
    _COMMON
    + """
from stepwarden.clock import SystemClock
from stepwarden.core.event import Event, Kind
def fill():
    with open(state / "filler", "wb") as file:
        try:
            while True:
                os.write(file.fileno(), bytes(4096))
        except OSError:
            pass
def dies():
    store = make_store(home)
    store.note_worker(wish("w", "runs"))
    assert durable(store)
    fill()
    for number in range(3000):
        store.journal.append(Event(Kind.DAEMON, "x" * 500), 1.0, SystemClock().wall())
    wait_for(lambda: "full" in store.trouble or "disk" in store.trouble, what=lambda: store.trouble)
    assert note(store, life(pid=41))
    store.note_worker(wish("w", "stopped"))
    kept = durable(store)
    assert kept and kept.reason, kept
    print(kept.reason, flush=True)
    os.kill(os.getpid(), 9)
def known(store):
    assert store.lives() == [life(pid=41)], store.lives()
    assert store.workers() == {"w": wish("w", "stopped")}, store.workers()
if sys.argv[2] == "dies":
    dies()
with open_store(home) as store:
    known(store)
    store.note_worker(wish("v", "stopped"))
    assert durable(store)
    store.note_worker(wish("v", "gone")); store.forget_worker("v")
store = make_store(home)
known(store)
(state / "filler").unlink()
wait_for(lambda: not store.trouble, what=lambda: store.trouble)
assert durable(store) and not durable(store).reason
wait_for(lambda: '"v"' not in (home / "run" / "worker-notes.json").read_text())
store.close()
with open_store(home) as store:
    known(store)
    assert store.trouble == ""
print("good")
"""
)

# The same disk read-only: what was noted before is known, what is said now is kept elsewhere.
_READ_ONLY = (
    _COMMON
    + """
store = make_store(home)
store.note_worker(wish("w", "stopped")); note(store, life(pid=41)); assert durable(store)
if sys.argv[2] == "closed":
    store.close()
else:
    # As a kill leaves it: the database, its WAL and its index.
    import shutil
    shutil.copytree(state, home / "killed")
    store.close()
    for path in state.iterdir(): path.unlink()
    for path in (home / "killed").iterdir(): shutil.copy(path, state / path.name)
subprocess.run(["mount", "-o", "remount,ro", state], check=True)
with open_store(home) as store:
    assert store.workers() == {"w": wish("w", "stopped")}, (store.workers(), store.trouble)
    assert store.lives() == [life(pid=41)]
    assert "cannot be used" in store.trouble and "not known" not in store.trouble, store.trouble
    store.note_worker(wish("v", "stopped"))
    assert durable(store)
with open_store(home) as store:
    assert set(store.workers()) == {"w", "v"}
    subprocess.run(["mount", "-o", "remount,rw", state], check=True)
    wait_for(lambda: not store.trouble)
with open_store(home) as store:
    assert set(store.workers()) == {"w", "v"}
    assert not list((home / "run").glob("stepwarden-copy-*"))
print("good")
"""
)

_LIMITED = (
    _COMMON
    + """
store = make_store(home)
store.note_worker(wish("w", "stopped")); assert durable(store)
size = (state / "stepwarden.sqlite-wal").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
for number in range(200): store.note_worker(wish(f"w{number}", "x" * 1000))
wait_for(lambda: store.trouble)
assert note(store, life(pid=41))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
wait_for(lambda: not store.trouble)
assert durable(store)
store.close()
with open_store(home) as store:
    assert len(store.workers()) == 201 and store.lives() == [life(pid=41)]
print("good")
"""
)


@pytest.fixture
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sw-") as name:
        (Path(name) / "state").mkdir()
        (Path(name) / "run").mkdir()
        yield Path(name)


@functools.cache
def may_mount() -> bool:
    """Whether this user may have a private mount namespace."""
    if shutil.which("unshare") is None:
        return False
    tried = ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return subprocess.run(tried, capture_output=True, check=False, timeout=30).returncode == 0


def run(script: str, *arguments: object, mounted: Path | None = None) -> tuple[int, str]:
    """Run a script, with a small disk of its own at `mounted`."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    if mounted is not None:
        mount = f'mount -t tmpfs -o size=1m tmpfs "{mounted}" && "$@"; r=$?; echo; exit $r'
        command = ["unshare", "--mount", "sh", "-c", mount, "sh", *command]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout + done.stderr


needs_mount = pytest.mark.skipif(not may_mount(), reason="takes a private mount namespace")


@needs_mount
def test_o_rstr_2_a_stop_and_a_life_outlive_kill_9_on_a_full_disk(home: Path) -> None:
    script = home / "full.py"
    script.write_text(_FULL)
    twice = (
        f'mount -t tmpfs -o size=1m tmpfs "{home}/state";'
        f' "{sys.executable}" "{script}" "{home}" dies; test $? = 137 || exit 3;'
        f' exec "{sys.executable}" "{script}" "{home}" comes-back'
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", twice],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, "good" in done.stdout) == (0, True), done.stdout + done.stderr


@needs_mount
@pytest.mark.parametrize("how", ["closed", "killed"])
def test_what_was_noted_is_known_on_a_read_only_disk(home: Path, how: str) -> None:
    code, said = run(_READ_ONLY, home, how, mounted=home / "state")
    assert (code, "good" in said) == (0, True), said


def test_a_limit_of_the_file_size_costs_nothing_that_was_noted(home: Path) -> None:
    code, said = run(_LIMITED, home)
    assert (code, "good" in said) == (0, True), said
