"""The first process of a box (systemd_box.py): makes its file systems and becomes systemd.

Runs by itself inside the new namespaces, as their PID 1, with the box's folder as its argument;
it can import nothing of ours.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterable
from pathlib import Path

SHARE = "/srv/share"
SYSTEMD = "/lib/systemd/systemd"
TARGET = "box.target"
ENVIRONMENT = {
    "container": "box",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/root",
}
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
# Hardware, network and console of the real machine are no business of the box: it starts only
# what stands here.
WANTED = {
    "sysinit.target": ("systemd-journald.service",),
    "sockets.target": ("systemd-journald.socket", "systemd-journald-dev-log.socket"),
}
TARGET_UNIT = """\
[Unit]
Description=The box is up
Requires=basic.target
After=basic.target
AllowIsolate=yes
"""


def _mount(kind: str, target: Path, options: str = "", source: str = "") -> None:
    target.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", kind, source or kind, str(target)]
    subprocess.run(command + (["-o", options] if options else []), check=True)


def _bind(source: Path, target: Path) -> None:
    subprocess.run(["mount", "--bind", str(source), str(target)], check=True)


def _file_systems(root: Path, scratch: Path) -> None:
    layers = f"lowerdir=/,upperdir={scratch}/upper,workdir={scratch}/work"
    for name in ("upper", "work"):
        (scratch / name).mkdir()
    _mount("overlay", root, layers)
    _mount("proc", root / "proc")
    # The machine's sysctls and devices are not the box's to change.
    _bind(root / "proc/sys", root / "proc/sys")
    subprocess.run(["mount", "-o", "remount,bind,ro", str(root / "proc/sys")], check=True)
    # Each boot of a box is one of its own, as on a machine.
    (scratch / "boot_id").write_text(f"{uuid.uuid4()}\n")
    _bind(scratch / "boot_id", root / "proc/sys/kernel/random/boot_id")
    _mount("sysfs", root / "sys", "ro")
    _mount("cgroup2", root / "sys/fs/cgroup")
    for name, options in (("run", "mode=755"), ("tmp", "mode=1777"), ("dev", "mode=755")):
        _mount("tmpfs", root / name, options)
    _mount("tmpfs", root / "dev/shm", "mode=1777")
    _mount("devpts", root / "dev/pts", "newinstance,ptmxmode=0666,mode=620,gid=5")


def _devices(dev: Path) -> None:
    for name in DEVICES:
        (dev / name).touch()
        _bind(Path("/dev") / name, dev / name)
    links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1"}
    for name, target in {**links, "stderr": "fd/2"}.items():
        (dev / name).symlink_to(target)


def _clear(folders: Iterable[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder)


def _units(root: Path) -> None:
    """Leave of this machine's units only what WANTED names, and boot into our own target."""
    for top in (root / "etc/systemd/system", root / "lib/systemd/system"):
        _clear(top.glob("*.wants"))
        _clear(top.glob("*.requires"))
    _clear(path for path in [root / "lib/systemd/system-generators"] if path.exists())
    own = root / "etc/systemd/system"
    own.mkdir(parents=True, exist_ok=True)
    for target, units in WANTED.items():
        wants = own / f"{target}.wants"
        wants.mkdir()
        for unit in units:
            (wants / unit).symlink_to(f"/lib/systemd/system/{unit}")
    (own / TARGET).write_text(TARGET_UNIT)
    (root / "etc/fstab").write_text("")
    (root / "etc/machine-id").unlink(missing_ok=True)
    (root / "etc/machine-id").write_text("")
    (root / "etc/hostname").write_text("box\n")


def _become_systemd(folder: Path) -> None:
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    scratch = folder / "scratch"
    _mount("tmpfs", scratch, "mode=755")
    root = scratch / "root"
    _file_systems(root, scratch)
    _devices(root / "dev")
    _units(root)
    share = root / SHARE.lstrip("/")
    share.mkdir(parents=True, exist_ok=True)
    _bind(folder / "share", share)
    old = root / "run/old"
    old.mkdir()
    os.chdir(root)
    subprocess.run(["pivot_root", ".", "run/old"], check=True)
    subprocess.run(["umount", "--lazy", "/run/old"], check=True)
    Path("/run/old").rmdir()
    arguments = [f"--unit={TARGET}", "--show-status=no", "--log-target=journal"]
    os.execve(SYSTEMD, [SYSTEMD, "--system", *arguments], ENVIRONMENT)


if __name__ == "__main__":
    _become_systemd(Path(sys.argv[1]))
