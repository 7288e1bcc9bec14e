"""What the daemon holds after thousands of restarts, beside what it held after the first hundreds.

A worker that exits at once is started again without any delay. Between restarts, each so many, one
look at the daemon: descriptors, threads, resident memory, children, control groups, directories of
pages, notes and other files below its directories and for temporary files, rows of its database.
`run.py leaks --restarts N` makes N of them. All but memory must be the same in the end as after the
warm-up; memory may grow by a megabyte for each 10 000, which is what the allocator's rest costs.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import time
from pathlib import Path

from results import Result
from servers import daemon, rss_megabytes, stub
from stepwarden.edge.cgroup import own_cgroup
from stepwarden_proto.v1 import supervisor_pb2

TOPIC = "restarts of a worker that exits at once"
RESTARTS = 2000
WARM_UP = 2500
"""The exits of the last 1024 children are remembered, pages of the database are cached: by then
what is bounded has reached its bound (memory stands still from some 2200 restarts on)."""

BODY = """defaults:
  restart: {delay: 0, jitter: 0, limit: 100000, within: 1s, stable: 1h}
workers:
  leaky: {agent: none, command: [/bin/true], ready: {delay: 1h}}
"""

Look = dict[str, float]


def measure(scratch: Path) -> list[Result]:
    restarts = _asked()
    with daemon(scratch, BODY) as process:
        looks = _watch(scratch, process.pid, restarts)
    first, last = looks[0][1], looks[-1][1]
    span = looks[-1][0] - looks[0][0]
    found = []
    for name, before in first.items():
        after = last[name]
        allowed = 1.0 + span / 10_000 if name == "RSS, MB" else 1.0
        told = f"{before:g} -> {after:g} over {span} restarts"
        found.append(Result(TOPIC, name, told, "flat", after - before <= allowed))
    return found


def _asked() -> int:
    words = sys.argv[1:]
    return int(words[words.index("--restarts") + 1]) if "--restarts" in words else RESTARTS


def _watch(scratch: Path, pid: int, restarts: int) -> list[tuple[int, Look]]:
    """Looks at the daemon, the first after the warm-up, ten in all."""
    service = stub(scratch)
    looks: list[tuple[int, Look]] = []
    every = max(1, restarts // 10)
    due = WARM_UP
    end = time.monotonic() + 60 + restarts
    while due <= WARM_UP + restarts:
        if time.monotonic() > end:
            raise TimeoutError(f"{looks[-1:]}: too slow")
        done = _deaths(service)
        if done >= due:
            looks.append((done, _look(scratch, pid)))
            _tell(*looks[-1], first=len(looks) == 1)
            due += every
        time.sleep(0.1)
    return looks


def _deaths(service: object) -> int:
    answer = service.ListWorkers(supervisor_pb2.ListWorkersRequest(), timeout=10)  # type: ignore[attr-defined]
    return int(answer.workers[0].deaths)


def _look(scratch: Path, pid: int) -> Look:
    """A life is always under way: the least of a few looks is what does not come and go."""
    looks = []
    for _ in range(20):
        looks.append(_one_look(scratch, pid))
        time.sleep(0.013)
    return {name: min(look[name] for look in looks) for name in looks[0]}


def _one_look(scratch: Path, pid: int) -> Look:
    tables = {f"rows of {name}": _rows(scratch, name) for name in ("life", "worker", "process")}
    return {
        "descriptors": _count(Path(f"/proc/{pid}/fd")),
        "threads": _count(Path(f"/proc/{pid}/task")),
        "RSS, MB": rss_megabytes(pid),
        "children": len(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()),
        "control groups": _of_lives(_groups()),
        "page directories": sum(map(_of_lives, _page_homes(scratch))),
        "files of the runtime directory": _files(scratch / "run"),
        "files of the state directory": _files(scratch / "state"),
        "temporary files": _files(scratch / "tmp"),
        **tables,
    }


def _count(directory: Path) -> int:
    return len(os.listdir(directory))


def _files(directory: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(directory))


def _groups() -> Path | None:
    own = own_cgroup()
    return None if own is None else own / "workers"


def _page_homes(scratch: Path) -> list[Path]:
    return [Path(line) for line in (scratch / "state" / "page-homes").read_text().split()]


def _of_lives(directory: Path | None) -> int:
    if directory is None or not directory.is_dir():
        return 0
    return sum(path.name.startswith("leaky.") for path in directory.iterdir())


def _rows(scratch: Path, table: str) -> int:
    path = f"file:{scratch / 'state' / 'stepwarden.sqlite'}?mode=ro"
    with contextlib.closing(sqlite3.connect(path, uri=True, timeout=10)) as database:
        return int(database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def _tell(done: int, look: Look, *, first: bool) -> None:
    """A line of the table; it goes on for long enough to be looked at meanwhile."""
    if first:
        print("restarts  " + "  ".join(look))
    cells = (f"{value:>{len(name)}g}" for name, value in look.items())
    print(f"{done:8}  " + "  ".join(cells), flush=True)
