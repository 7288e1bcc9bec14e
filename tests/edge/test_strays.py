"""Workers of a supervisor without its state are known by their marks; nobody else's are."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest
from stepwarden.core.evidence import ProcessId
from stepwarden.edge.process_probe import alive
from stepwarden.edge.process_table import ProcessTable
from stepwarden.edge.state_records import LifeRecord
from stepwarden.edge.strays import find_strays
from stepwarden_proto import page
from support.waiting import wait_for


def anybody(_worker: str, _uid: int) -> bool:
    return True


class Marked:
    """Starts processes whose environment says whose they are."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.target = f"unix:{home}/agent.sock"
        self.stack = ExitStack()
        self.name = f"w.3.{os.urandom(4).hex()}"
        self.pages = home / "pages" / self.name
        self.pages.mkdir(parents=True)

    def marks(self, **other: str) -> dict[str, str]:
        told = {
            page.ENV_WORKER: "w",
            page.ENV_INCARNATION: self.name,
            page.ENV_TARGET: self.target,
            page.ENV_TOKEN: "secret",
            page.ENV_PAGE_DIR: str(self.pages),
        }
        return told | other

    def start(self, marks: Mapping[str, str], *before: str) -> subprocess.Popen[bytes]:
        command = [*before, "sleep", "1000"]
        process = subprocess.Popen(command, env={"PATH": os.environ["PATH"], **marks})
        self.stack.callback(process.wait, 10)
        self.stack.callback(process.kill)
        cmdline = Path(f"/proc/{process.pid}/cmdline")
        wait_for(lambda: cmdline.read_bytes().startswith(b"sleep"))
        return process

    def ticks(self, pid: int) -> int:
        return ProcessTable.scan().by_pid[pid].start_ticks

    def found(self, trusted: object = anybody) -> list[LifeRecord]:
        table = ProcessTable.scan()
        found = find_strays({self.target}, table, trusted, self.home)  # type: ignore[arg-type]
        return [record for record in found if record.worker in ("w", "v")]


@pytest.fixture
def marked(tmp_path: Path) -> Iterator[Marked]:
    made = Marked(tmp_path)
    with made.stack:
        yield made


def test_a_life_is_found_with_its_main_and_what_its_agent_needs(marked: Marked) -> None:
    process = marked.start(marked.marks())
    (record,) = marked.found()
    assert (record.worker, record.incarnation, record.pid) == ("w", marked.name, process.pid)
    assert (record.token, record.page_dir) == ("secret", str(marked.pages))
    assert record.start_ticks > 0


def test_the_main_process_is_known_by_the_mark_that_its_tree_inherits(marked: Marked) -> None:
    main = marked.start({})  # it has blanked its environment
    child = marked.start(marked.marks(**{page.ENV_MAIN: str(main.pid)}))
    (record,) = marked.found()
    assert record.pid == main.pid != child.pid
    assert record.start_ticks == marked.ticks(main.pid) > 0


def test_a_main_process_that_has_ended_is_named_and_no_other_takes_its_place(
    marked: Marked,
) -> None:
    main = marked.start({})
    marked.start(marked.marks(**{page.ENV_MAIN: str(main.pid)}))
    main.kill()
    main.wait(10)
    (record,) = marked.found()
    assert (record.pid, record.start_ticks) == (main.pid, 0)
    assert not alive(ProcessId(record.pid, record.start_ticks))


def test_a_number_that_somebody_has_got_since_is_not_the_main_process(marked: Marked) -> None:
    child = marked.start(marked.marks(**{page.ENV_MAIN: "4194303"}))
    later = marked.start({})
    assert marked.ticks(later.pid) >= marked.ticks(child.pid)
    (record,) = marked.found()
    assert (record.pid, record.start_ticks) == (4194303, 0)


@pytest.mark.parametrize("told", ["", "x", "-1"])
def test_a_mark_that_is_no_pid_says_nothing(marked: Marked, told: str) -> None:
    process = marked.start(marked.marks(**{page.ENV_MAIN: told}))
    (record,) = marked.found()
    assert record.pid == process.pid


def test_marks_count_only_for_the_user_that_the_worker_has(marked: Marked) -> None:
    marked.start(marked.marks())
    asked = []

    def trusted(worker: str, uid: int) -> bool:
        asked.append((worker, uid))
        return False

    assert marked.found(trusted) == []
    assert asked == [("w", os.geteuid())]


@pytest.mark.parametrize(
    "other",
    [
        {page.ENV_TARGET: "unix:/run/another/agent.sock"},
        {page.ENV_TARGET: "127.0.0.1:50051"},
        {page.ENV_WORKER: "v"},
        {page.ENV_INCARNATION: "w"},
        {page.ENV_INCARNATION: "w.3.xyz"},
        {page.ENV_INCARNATION: ""},
    ],
    ids=str,
)
def test_marks_that_no_daemon_of_ours_made_are_none(marked: Marked, other: dict[str, str]) -> None:
    marked.start(marked.marks(**other))
    assert marked.found() == []


def test_a_life_whose_name_is_a_path_is_none_of_ours(marked: Marked) -> None:
    """Its pages would be looked for, and taken away in the end, wherever that path leads."""
    name = f"../{marked.name}"
    marked.start(marked.marks(**{page.ENV_WORKER: "../w", page.ENV_INCARNATION: name}))
    table = ProcessTable.scan()
    assert find_strays({marked.target}, table, anybody, marked.home / "pages") == []


@pytest.mark.parametrize("path", ["/etc", "relative", "", "/nowhere/at/all"])
def test_a_page_directory_that_cannot_be_is_not_believed(marked: Marked, path: str) -> None:
    """It is taken away when the life is over, maybe by root."""
    marked.start(marked.marks(**{page.ENV_PAGE_DIR: path}))
    (record,) = marked.found()
    assert record.page_dir == str(marked.home / marked.name)


def test_a_worker_of_a_supervisor_in_a_container_is_not_ours(marked: Marked) -> None:
    """There the path of the socket is the same, and the directory another."""
    unshare = ["unshare", "--mount", "--map-root-user"]
    script = f'mount -t tmpfs none {marked.home} && exec "$@"'
    tried = subprocess.run([*unshare, "sh", "-c", script, "-", "true"], check=False)
    if tried.returncode != 0:
        pytest.skip("this user may not make a mount namespace")
    marked.start(marked.marks(), *unshare, "sh", "-c", script, "-")
    assert marked.found() == []
