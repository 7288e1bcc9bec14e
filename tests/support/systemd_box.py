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
from pathlib import Path
from types import TracebackType
from typing import Self

from support import systemd_init
from support.systemd_init import ENVIRONMENT, SHARE, SYSTEMD
from support.waiting import wait_for

NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup")
TOOLS = ("unshare", "nsenter", "mount", "umount", "pivot_root", "systemctl")
POWEROFF = signal.SIGRTMIN + 4


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

    @property
    def init(self) -> int:
        """The pid of its systemd on this machine; 0 where it is not booted."""
        return self._init

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command inside as root; a failure shows its output."""
        enter = ["nsenter", "--target", str(self._init), "--root", "--wd"]
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
            wait_for(lambda: _removed(group), 10, f"{group} is empty")
            self._group = None

    def _boot(self) -> None:
        self.share.mkdir(parents=True, exist_ok=True)
        own = _cgroup2()
        assert own is not None
        self._group = own / f"box-{os.getpid()}-{self._folder.name}"
        self._group.mkdir()
        enter_group = f"echo $$ > {self._group}/cgroup.procs && exec " + '"$@"'
        program = Path(systemd_init.__file__).resolve()
        inner = [sys.executable, "-I", str(program), str(self._folder)]
        outer = ["unshare", *NAMESPACES, "--fork", "--kill-child", *inner]
        with (self._folder / "console.log").open("wb") as console:
            self._outer = subprocess.Popen(
                ["sh", "-c", enter_group, "sh", *outer],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )
        wait_for(self._systemd_runs, 20, "systemd is PID 1 of the box")
        # The waiting parent is no member of the box: its pid means nothing in there.
        (own / "cgroup.procs").write_text(str(self._outer.pid))
        wait_for(self._booted, 60, "the box has booted")

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
