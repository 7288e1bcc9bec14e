"""Six workers of different shapes, strangers that look like them, and a daemon to be killed.

Where this user may mount, the state directory is a tiny file system of its own in a private mount
namespace, which the daemon enters at each start: it can be filled up.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from stepwarden.edge.cgroup import own_cgroup
from stepwarden_proto.v1 import supervisor_pb2

from support.crew import Crew, Section
from support.daemon import free_port
from support.mounts import HIDE_CGROUPS, entering, keep_mounts, tiny_disk
from support.truth import Seen, marked, roll, stat_of

SURVIVOR = str(Path(__file__).with_name("survivor.py"))
BYSTANDER = str(Path(__file__).with_name("bystander.py"))
STATE_MEGABYTES = 16

DEFAULTS: Section = {
    "restart": {
        "delay": "100ms",
        "factor": 1,
        "max_delay": "100ms",
        "jitter": 0,
        "limit": 100000,
        "within": "10m",
        "stable": "1h",
    },
    "heartbeat": {"interval": "1s", "timeout": "3s"},
    "stop": {"grace": "10s"},
}


def _role(role: str, **sections: Any) -> Section:
    return {"command": [sys.executable, SURVIVOR, role], "env": {}, "backend": "cpu", **sections}


def _quick(role: str, **sections: Any) -> Section:
    """Without an agent, and without the start of a whole interpreter."""
    command = [sys.executable, "-I", "-S", SURVIVOR, role]
    return _role(role, command=command, agent="none", **sections)


def troupe(printed: Path, port: int) -> dict[str, Section]:
    """The workers by name, one of each role."""
    line = f'{sys.executable} -I -S {SURVIVOR} shell 2>&1 | tee -a "$STORY_DIR/said"'
    shell = {"shell": line, "env": {}, "agent": "none", "backend": "cpu"}
    output = {"mode": "capture", "path": str(printed), "max_file": "1MiB", "keep": 1}
    return {
        "plain": _role("plain"),
        "tree": _role("tree"),
        "shell": shell,
        "probe": _quick(
            "probe",
            ready={"tcp": f"127.0.0.1:{port}", "interval": "100ms"},
            release={"ports": [port], "limit": "30s"},
        ),
        "printer": _quick("printer", output=output),
        "crasher": _quick("crasher"),
    }


class Troupe(Crew):
    """The daemon with its six workers.

    `can_fill`: whether its state directory can be filled up. `hide_cgroups`: where it may be, the
    daemon sees no control groups, as in many containers.
    """

    def __init__(self, *, hide_cgroups: bool) -> None:
        workers = troupe(Path("/"), 1)  # for their names; directories are known later
        super().__init__(workers, defaults=DEFAULTS)
        self.workers = {name: self.directory / name for name in workers}
        self._write(free_port())
        state = self.directory / "state"
        state.mkdir(mode=0o700)
        lines = [tiny_disk(state, STATE_MEGABYTES), *([HIDE_CGROUPS] if hide_cgroups else [])]
        self._keeper = keep_mounts(*lines)
        self._bystanders: list[subprocess.Popen[bytes]] = []

    def _write(self, port: int) -> None:
        workers = troupe(self.directory / "printed", port)
        for name, section in workers.items():
            section["env"] |= {"STORY_DIR": str(self.workers[name]), "STORY_PORT": str(port)}
        self.write_sections(workers, defaults=DEFAULTS)

    @property
    def can_fill(self) -> bool:
        """Whether its state directory is a tiny file system."""
        return self._keeper is not None

    def command(self) -> list[str]:
        """As any daemon's, in the namespace where its state directory is mounted."""
        if self._keeper is None:
            return super().command()
        return entering(self._keeper, super().command())

    def state(self) -> Path:
        """The state directory as the daemon sees it."""
        root = "" if self._keeper is None else f"/proc/{self._keeper.pid}/root"
        return Path(f"{root}{self.directory / 'state'}")

    def fill(self) -> None:
        """Not one more byte goes into the state directory."""
        with suppress(OSError), open(self.state() / "filler", "ab", buffering=0) as file:
            while True:
                file.write(b"\0" * 4096)

    def make_room(self) -> None:
        """It takes something again."""
        (self.state() / "filler").unlink(missing_ok=True)

    def launch(self) -> None:
        """Start the daemon and do not wait for it."""
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env=self.environment(),
                start_new_session=True,
            )

    def kill_now(self) -> None:
        """SIGKILL for the daemon alone, at once."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(10)
        self.process = None
        self._close_channel()

    def __enter__(self) -> Troupe:
        super().__enter__()
        return self

    def tell(self, word: str, worker: str) -> Any:
        """Give a command and wait for nothing."""
        request = supervisor_pb2.WorkerCommandRequest(name=worker)
        method = getattr(self.admin(), f"{word.capitalize()}Worker")
        return method.future(request, timeout=20)

    def seen(self) -> list[Seen]:
        """Every living process of this story."""
        return marked(self.mark, self.workers)

    def rests(self) -> list[Path]:
        """What there is of lives besides processes, named by them: notes, pages, groups."""
        homes = Path(f"{self.state()}/page-homes").read_text(encoding="utf-8").split()
        places = [Path(home) for home in homes]
        places += (self.directory / "run").glob("lives*")
        if (own := own_cgroup()) is not None:
            places.append(own / "workers")
        found = (path for place in places if place.is_dir() for path in place.iterdir())
        names = tuple(f"{name}." for name in self.workers)
        return [path for path in found if path.name.startswith(names) and self._is_ours(path)]

    def _is_ours(self, path: Path) -> bool:
        """Other stories have workers of these names; their lives never signed in here."""
        directory = self.workers[path.name.partition(".")[0]]
        return any(one.life in path.name for one in roll(directory))

    # Strangers

    def post_bystanders(self) -> None:
        """Look-alikes of workers in command line and environment, each for another reason."""
        command = [sys.executable, SURVIVOR, "plain"]
        target = f"unix:{self.directory}/run/agent.sock"
        environs: list[Mapping[str, str]] = [
            {},
            {"STEPWARDEN_WORKER": "plain", "STORY_DIR": str(self.workers["plain"])},
            {"STEPWARDEN_WORKER": "tree", "STEPWARDEN_TARGET": target},
            {
                "STEPWARDEN_WORKER": "plain",
                "STEPWARDEN_INCARNATION": "plain.1.00000000",
                "STEPWARDEN_TARGET": "unix:/run/another/agent.sock",
            },
        ]
        for number, environ in enumerate(environs):
            told = self.directory / f"bystander{number}"
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", BYSTANDER, str(told), *command],
                stdout=subprocess.PIPE,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **environ},
                cwd=self.directory,
                start_new_session=number % 2 == 0,
            )
            assert process.stdout is not None
            process.stdout.readline()
            self._bystanders.append(process)

    def assert_bystanders_untouched(self) -> None:
        """Nobody ended, stopped or signalled one of them."""
        for number, process in enumerate(self._bystanders):
            found = stat_of(process.pid)
            assert found is not None, f"bystander {number} was killed"
            assert found[2] != "T", f"bystander {number} was stopped"
            told = self.directory / f"bystander{number}"
            assert not told.exists(), f"bystander {number} got {told.read_text()}"

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._end([*self._bystanders, *([self._keeper] if self._keeper else [])])

    def _end(self, processes: Sequence[subprocess.Popen[bytes]]) -> None:
        for process in processes:
            process.kill()
            process.wait(10)
            if process.stdout is not None:
                process.stdout.close()
