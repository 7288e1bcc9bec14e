"""Control groups of version 2: the one trace that no process loses by forking, exec or setsid.

A worker's group needs no controller. That is why a group can be made below our own although we
are in there ourselves: the kernel forbids processes in an inner group only where that hands
controllers down. A group here so limits and accounts nothing; a systemd unit's may.

Whoever may not make one (no delegation, version 1, a read-only mount) gets None, and the other
traces (ancestry, sessions, marker, page) are all there is.
"""

from __future__ import annotations

import asyncio
import os
import select
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from errno import ENODEV, ENOENT, EOPNOTSUPP
from pathlib import Path

from stepwarden.core.deadline import clamp_timeout
from stepwarden.edge.cgroup_mounts import folder_of, group_of

_GONE = (ENOENT, ENODEV)  # the second for a file that was open when its group was removed
_HOME = "workers"
_SYSTEMD_RUNS = Path("/run/systemd/system")
_DELEGATED = ("user.delegate", "trusted.delegate")  # systemd's marks; the second is for root only


class Cgroup:
    """One control group of version 2 with all below it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"Cgroup({str(self.path)!r})"

    def processes(self) -> frozenset[int]:
        """The pids in it and below; a process that ended is not listed, reaped or not.

        Empty where the group is gone. OSError where it cannot be read now.
        """
        found: set[int] = set()
        for folder in _tree(self.path):
            found.update(_pids(folder))
        return frozenset(found - {0})  # 0: somebody of a pid namespace that we do not see

    @property
    def populated(self) -> bool:
        """Whether a process runs in it or below; True as well where nobody can tell now."""
        try:
            count = _counter(self.path / "cgroup.events", "populated")
        except OSError as error:
            return error.errno not in _GONE or self._is_root()
        return count != 0

    def _is_root(self) -> bool:
        # The root of the hierarchy has no such file, and always has processes.
        return (self.path / "cgroup.procs").exists()

    def kill(self) -> bool:
        """SIGKILL for all of them at once, those that are just being forked included.

        False where this cannot be done (kernels before 5.14, no permission, no such group).
        Whoever stands in it dies too: ask who that is before.
        """
        try:
            (self.path / "cgroup.kill").write_text("1")
        except OSError:
            return False
        return True

    def thaw(self) -> bool:
        """Let it go on where it was frozen itself; True: it was. KILL alone reaches the frozen."""
        switch = self.path / "cgroup.freeze"
        try:
            if switch.read_text().strip() != "1":
                return False
            switch.write_text("0")
        except OSError:
            return False
        return True

    def add(self, pid: int) -> None:
        """Move a process there; OSError where that is refused."""
        (self.path / "cgroup.procs").write_text(str(pid))

    def remove(self) -> bool:
        """Remove it and what is below; True: it is gone. A process in there keeps it."""
        try:
            folders = list(_tree(self.path))
            for folder in reversed(folders):
                with suppress(FileNotFoundError):
                    folder.rmdir()
        except OSError:
            return False
        return True

    def oom_kills(self) -> int | None:
        """How many processes in it were killed because memory ran out.

        None where nobody counts: no memory controller reaches down to it, or it is gone.
        """
        with suppress(OSError):
            return _counter(self.path / "memory.events", "oom_kill")
        return None

    async def until_empty(self, timeout: float | None) -> bool:
        """Wait until no process is left, `timeout` seconds at most (None: for ever); True: none is.

        The kernel tells at once; where it cannot be asked, only the end of the timeout is seen.
        """
        loop = asyncio.get_running_loop()
        empty = loop.create_future()

        def look() -> None:
            if not self.populated and not empty.done():
                empty.set_result(None)

        with suppress(TimeoutError), _changes(self.path / "cgroup.events", look):
            look()
            await asyncio.wait_for(empty, clamp_timeout(timeout))
        return not self.populated


def at_control_group(name: str) -> Cgroup | None:
    """The group that systemd calls `name` (ControlGroup of a unit); None where there is none."""
    folder = folder_of(name) if name else None
    return None if folder is None else Cgroup(folder)


def own_cgroup() -> Path | None:
    """Our own group in the version 2 hierarchy; None where there is no such or it lies outside."""
    name = group_of("self")
    return None if name is None else folder_of(name)


def make_home() -> Path | None:
    """`workers` below our own group, made where that was given to us; None: there can be none."""
    own = own_cgroup()
    if own is None or not is_ours(own):
        return None
    home = own / _HOME
    try:
        home.mkdir(exist_ok=True)
        # In a threaded group whatever is made is of no use for whole processes.
        usable = (home / "cgroup.type").read_text().strip() == "domain"
    except OSError:
        return None
    return home if usable else None


def expect_joins(home: Path) -> None:
    """Somebody is about to join a group below `home`: let the kernel get ready. Never raises.

    Whoever joins waits for a grace period of the kernel (7 to 19 ms measured), and all that come
    within it share one. Begun here, by joining the group that we are in anyway, it passes while a
    tree is being ended. Blocks as long: call it in a thread.
    """
    with suppress(OSError):
        (home.parent / "cgroup.procs").write_text(str(os.getpid()))


def remove_home(home: Path) -> bool:
    """Remove what `make_home` made; False where groups of lives are in it."""
    try:
        home.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def make_cgroup(home: Path, name: str) -> Cgroup | None:
    """A new group for the life of this name; None where the kernel refuses or it is there already.

    The launched process joins it by itself, before exec: "0" into `cgroup.procs`.
    """
    path = home / name
    try:
        path.mkdir()
    except OSError:
        return None
    return Cgroup(path)


def is_ours(group: Path, systemd_runs: bool | None = None) -> bool:
    """Whether we may make groups below `group`.

    Being able to is not enough where systemd rules the hierarchy: root always is, and what it did
    not delegate is systemd's alone. `systemd_runs` None: looked up.
    """
    if not os.access(group, os.W_OK) or not os.access(group / "cgroup.procs", os.W_OK):
        return False
    if systemd_runs is None:
        systemd_runs = _SYSTEMD_RUNS.is_dir()
    # The parent as well, for DelegateSubgroup=. Without root, write access is by delegation only.
    return not systemd_runs or os.geteuid() != 0 or _marked(group) or _marked(group.parent)


def _marked(group: Path) -> bool:
    for name in _DELEGATED:
        with suppress(OSError):
            if os.getxattr(group, name) == b"1":
                return True
    return False


def _tree(top: Path) -> Iterator[Path]:
    """`top` and every group below, parents first; what vanishes meanwhile is left out."""
    queue = [top]
    while queue:
        folder = queue.pop()
        yield folder
        with _if_there(), os.scandir(folder) as entries:
            queue.extend(Path(e.path) for e in entries if e.is_dir(follow_symlinks=False))


def _pids(folder: Path) -> Iterable[int]:
    with _if_there():
        return [int(pid) for pid in (folder / "cgroup.procs").read_text().split()]
    return ()


@contextmanager
def _if_there() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # The last is the answer of a threaded group; its processes are listed further up.
        if error.errno not in (*_GONE, EOPNOTSUPP):
            raise


def _counter(path: Path, name: str) -> int | None:
    for line in path.read_text().splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return int(value)
    return None


@contextmanager
def _changes(path: Path, on_change: Callable[[], None]) -> Iterator[None]:
    """Call `on_change` on the loop at each change of a control file, within the block.

    Such a file is always readable and tells a change by POLLPRI, which the loop does not ask for;
    an epoll descriptor between them does.
    """
    loop = asyncio.get_running_loop()
    with ExitStack() as stack:
        with suppress(OSError):  # no descriptor is left, or the group is gone: nothing is told
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            stack.callback(os.close, file)
            poll = stack.enter_context(select.epoll())
            os.pread(file, 512, 0)  # what has been read is no news
            poll.register(file, select.EPOLLPRI)

            def changed() -> None:
                with suppress(OSError):
                    os.pread(file, 512, 0)
                on_change()

            loop.add_reader(poll.fileno(), changed)
            stack.callback(loop.remove_reader, poll.fileno())
        yield
