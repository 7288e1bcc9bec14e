"""A real systemd to start units in: PID 1 of new namespaces over an overlay of this machine.

    with SystemdBox(folder) as box:
        box.run("systemctl", "start", "x.service")

The box sees this machine's root file system through an overlay in memory, so that nothing it
writes stays; `box.share` is the one folder that both sides see, as `SHARE` inside. It has its own
pids, mounts, control groups, host name and network (a loopback alone). systemd never runs outside
of these namespaces. Needs root.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

SHARE = "/srv/share"
SYSTEMD = "/lib/systemd/systemd"
TARGET = "box.target"
ENVIRONMENT = {
    "container": "box",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG": "C.UTF-8",
    "HOME": "/root",
}
NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup")
TOOLS = ("unshare", "nsenter", "mount", "umount", "pivot_root", "systemctl")
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
POWEROFF = signal.SIGRTMIN + 4
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


def missing() -> str | None:
    """Why no box can be had here; None where it can."""
    if os.geteuid() != 0:
        return "booting systemd needs root"
    if not Path(SYSTEMD).exists():
        return f"there is no {SYSTEMD}"
    tools = [name for name in TOOLS if shutil.which(name) is None]
    if tools:
        return f"there is no {', '.join(tools)}"
    if _cgroup2() is None:
        return "no cgroup2 file system is mounted"
    probe = subprocess.run(
        ["unshare", *NAMESPACES, "--fork", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
        capture_output=True,
        text=True,
        check=False,
    )
    return f"namespaces are refused: {probe.stderr.strip()}" if probe.returncode else None


def wait_until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Return as soon as `condition` holds; AssertionError naming `what` after `seconds`."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.02)


class SystemdBox:
    """One boot. `folder` must lie on a real file system; it receives `share/` and `console.log`."""

    def __init__(self, folder: Path) -> None:
        self.share = folder / "share"
        self._folder = folder
        self._outer: subprocess.Popen[bytes] | None = None
        self._init = 0
        self._group: Path | None = None

    def __enter__(self) -> Self:
        try:
            self._boot()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command inside as root; a failure shows its output."""
        enter = ["nsenter", "--target", str(self._init), "--root", "--wd=/"]
        enter += ["--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"]
        done = subprocess.run(
            [*enter, *command],
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{command} -> {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def show(self, unit: str, *names: str) -> dict[str, str]:
        """Properties of a unit, as `systemctl show` prints them."""
        text = self.run("systemctl", "show", unit, "--property", ",".join(names)).stdout
        return dict(line.split("=", 1) for line in text.splitlines())

    def install(self, source: Path, target: str) -> None:
        """Put a file of this machine at the absolute path `target` inside."""
        staged = self.share / "installing"
        shutil.copyfile(source, staged)
        self.run("install", "-D", "-m", "644", f"{SHARE}/installing", target)
        staged.unlink()

    def stop(self) -> None:
        """Power off, or end it by force; then nothing of it is left. May be called again."""
        if self._outer is not None:
            if self._init and self._outer.poll() is None:
                os.kill(self._init, POWEROFF)
            try:
                self._outer.wait(30)
            except subprocess.TimeoutExpired:
                self._outer.kill()
                self._outer.wait()
        self._outer, self._init = None, 0
        if self._group is not None:
            group = self._group
            wait_until(lambda: _removed(group), 10, f"{group} is empty")
            self._group = None

    def _boot(self) -> None:
        self.share.mkdir(parents=True, exist_ok=True)
        own = _cgroup2()
        assert own is not None
        self._group = own / f"box-{os.getpid()}-{self._folder.name}"
        self._group.mkdir()
        enter_group = f"echo $$ > {self._group}/cgroup.procs && exec " + '"$@"'
        inner = [sys.executable, "-I", str(Path(__file__).resolve()), str(self._folder)]
        outer = ["unshare", *NAMESPACES, "--fork", "--kill-child", *inner]
        with (self._folder / "console.log").open("wb") as console:
            self._outer = subprocess.Popen(
                ["sh", "-c", enter_group, "sh", *outer],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )
        wait_until(self._systemd_runs, 20, "systemd is PID 1 of the box")
        # The waiting parent is no member of the box: its pid means nothing in there.
        (own / "cgroup.procs").write_text(str(self._outer.pid))
        wait_until(self._booted, 60, "the box has booted")

    def _systemd_runs(self) -> bool:
        assert self._outer is not None
        self._must_live()
        children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children")
        pids = children.read_text().split()
        if not pids or Path(f"/proc/{pids[0]}/comm").read_text().strip() != "systemd":
            return False
        self._init = int(pids[0])
        return True

    def _booted(self) -> bool:
        self._must_live()
        state = self.run("systemctl", "is-system-running", check=False).stdout.strip()
        return state in {"running", "degraded"}

    def _must_live(self) -> None:
        assert self._outer is not None
        if self._outer.poll() is not None:
            raise AssertionError("no boot: " + (self._folder / "console.log").read_text())


def _cgroup2() -> Path | None:
    """The folder of this process in the version 2 hierarchy."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            mounts = (row.split() for row in Path("/proc/self/mounts").read_text().splitlines())
            tops = [Path(row[1]) for row in mounts if row[2] == "cgroup2"]
            return tops[0] / line[len("0::/") :] if tops else None
    return None


def _removed(group: Path) -> bool:
    """Remove a control group and all below it; False while something still runs in there."""
    folders = [path for path in group.rglob("*") if path.is_dir()]
    for folder in [*sorted(folders, key=lambda path: len(path.parts), reverse=True), group]:
        try:
            folder.rmdir()
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


# From here on: the part that runs inside the new namespaces, as their PID 1, until systemd is it.


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
