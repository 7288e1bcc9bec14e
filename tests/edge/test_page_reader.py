"""The reader of progress pages: real files, real locks, and garbage in every form."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from stepwarden.edge import page_file, page_reader
from stepwarden.edge.page_file import OpenPage, open_page
from stepwarden.edge.page_reader import PageReader, PageView, settled
from stepwarden_agent.page_file import Page, create_page
from stepwarden_agent.progress import Ring
from stepwarden_proto import page
from support.agent_process import agent_environment, engine, line_from

IDLE_ENGINE = """
import sys, time
from stepwarden_agent import Agent
agent = Agent.from_env(phase="loading")
handle = agent.begin(4, 100, "warmup")
print("ready", flush=True)
sys.stdin.readline()
"""


def make(directory: Path, rank: str = "0") -> tuple[Page, Ring]:
    made = create_page(str(directory), rank, "idle")
    ring = Ring(lambda: None)
    ring.attach(made.words)
    return made, ring


def one(reader: PageReader) -> PageView:
    (view,) = reader.read(time.monotonic()).values()
    return view


def test_a_live_agent_is_seen_with_its_holder(tmp_path: Path) -> None:
    with engine(IDLE_ENGINE, agent_environment(pages=tmp_path)) as process:
        assert line_from(process) == "ready"
        reader = PageReader(tmp_path, expect_uid=os.getuid())
        view = one(reader)
        assert (view.pid, view.holder, view.uid) == (process.pid, process.pid, os.getuid())
        assert (view.rank, view.name) == ("0", page.page_name("0", process.pid))
        assert (view.own_clock, view.clamped, view.overflows) == (True, 0, 0)
        assert view.phase == "loading"
        assert (view.steps[0].num_seqs, view.steps[0].num_tokens) == (4, 100)
        assert view.steps[0].begin <= time.monotonic()
        process.kill()
        process.wait()
        after = one(reader)
        assert after.holder is None
        assert after.steps == view.steps
        reader.close()


def test_mode_and_size_are_exact(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made, _ = make(tmp_path)
    finally:
        os.umask(before)
    about = (tmp_path / made.name).stat()
    assert (about.st_mode & 0o7777, about.st_size) == (0o600, page.PAGE_BYTES)


def test_a_page_is_never_made_over_something_else(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    (tmp_path / page.page_name("0", os.getpid())).symlink_to(victim)
    with pytest.raises(OSError, match="exists"):
        create_page(str(tmp_path), "0", "idle")
    assert victim.read_bytes() == b"precious"


def test_steps_work_and_lease_come_out_in_our_terms(tmp_path: Path) -> None:
    made, ring = make(tmp_path)
    ring.end(ring.begin(1, 2, "prefill"))
    ring.begin(-1, 8, "decode")
    begin_ns = time.monotonic_ns()
    made.words[page.W_LEASE_NS] = 5_000_000_000
    made.words[page.W_LEASE_BEGIN_NS] = begin_ns
    made.words[page.W_UNFINISHED] = 3
    made.words[page.W_LOOP_TURNS] = 12
    view = one(PageReader(tmp_path))
    assert [(s.number, s.num_seqs, s.num_tokens, s.phase) for s in view.steps] == [
        (2, None, 8, "decode")
    ]
    assert (view.steps_begun, view.phase) == (2, "decode")
    assert [ended.number for ended in view.last_ended] == [1]
    assert view.lease is not None
    assert (view.lease.begin, view.lease.seconds) == (begin_ns / 1e9, 5.0)
    assert view.work is not None
    assert (view.work.unfinished, view.work.loop_turns) == (3, 12)
    assert not view.in_motion


def test_a_stamp_of_the_future_is_placed_at_now(tmp_path: Path) -> None:
    made, _ = make(tmp_path)
    made.words[page.W_TICK_NS] = time.monotonic_ns() + 10**15
    now = time.monotonic()
    assert PageReader(tmp_path).read(now)["0"].tick_at == now


def test_a_stamp_of_the_future_keeps_the_place_where_it_was_first_seen(tmp_path: Path) -> None:
    """Placed at now with each read, such a step would never be late."""
    made, ring = make(tmp_path)
    step = ring.begin(1, 1, "decode")
    ahead = time.monotonic() + 1e6
    made.words[page.HEADER_WORDS + step * page.SLOT_WORDS + page.S_BEGIN_NS] = int(ahead * 1e9)
    made.words[page.W_UNFINISHED] = 3
    made.words[page.W_UNFINISHED_NS] = int(ahead * 1e9) + 1
    reader = PageReader(tmp_path)
    first = time.monotonic()
    for later in (0.0, 30.0, 3600.0):
        view = reader.read(first + later)["0"]
        assert view.steps[0].begin == first
        assert view.work is not None
        assert view.work.since == first
        assert view.clamped == 2, "each stamp counts once, however often it is read"


def test_no_stamp_lies_before_the_life_began(tmp_path: Path) -> None:
    made, ring = make(tmp_path)
    step = ring.begin(1, 1, "decode")
    made.words[page.HEADER_WORDS + step * page.SLOT_WORDS + page.S_BEGIN_NS] = 1
    began = time.monotonic()
    reader = PageReader(tmp_path, not_before=began)
    view = reader.read(began + 5.0)["0"]
    assert view.steps[0].begin == began
    # The page itself, made before `began`, has one more such stamp: that of its phase.
    assert view.clamped == 2
    ring.end(step)
    made.words[page.HEADER_WORDS + page.SLOT_WORDS * ring.begin(1, 1) + page.S_BEGIN_NS] = 2
    assert reader.read(began + 6.0)["0"].clamped == 3


def test_on_a_foreign_clock_only_ages_count(tmp_path: Path) -> None:
    made, ring = make(tmp_path)
    ring.begin(1, 1, "decode")
    start = page.HEADER_WORDS + page.SLOT_WORDS
    made.words[page.W_BOOT_ID_LOW] += 1
    made.words[page.W_PHASE_NS] = made.words[start + page.S_BEGIN_NS] = 100 * 10**9
    made.words[page.W_TICK_NS] = 107 * 10**9
    reader = PageReader(tmp_path)
    view = reader.read(5000.0)["0"]
    assert not view.own_clock
    assert (view.tick_at, view.steps[0].begin) == (5000.0, 4993.0)
    # The writer stands still: its step grows older on our clock.
    assert reader.read(5010.0)["0"].steps[0].begin == 4993.0
    made.words[page.W_TICK_NS] = 120 * 10**9
    assert reader.read(5020.0)["0"].steps[0].begin == 5000.0


def test_a_held_page_wins_over_an_abandoned_one(tmp_path: Path) -> None:
    make(tmp_path)  # nobody else's lock is seen on a page of our own: abandoned
    with engine(IDLE_ENGINE, agent_environment(pages=tmp_path)) as process:
        assert line_from(process) == "ready"
        assert one(PageReader(tmp_path)).pid == process.pid


def test_pages_of_forked_children_do_not_pile_up(tmp_path: Path) -> None:
    code = (
        "import os, sys\n"
        "from stepwarden_agent import Agent\n"
        "agent = Agent.from_env()\n"
        "for _ in range(4):\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        agent.begin(1, 1, 'decode')\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "print('ready', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    with engine(code, agent_environment(pages=tmp_path)) as process:
        assert line_from(process) == "ready"
        assert len(list(tmp_path.iterdir())) == 5
        reader = PageReader(tmp_path)
        for _ in range(3):
            assert one(reader).pid == process.pid
        assert [path.name for path in tmp_path.iterdir()] == [page.page_name("0", process.pid)]
        reader.close()


@pytest.mark.parametrize("rank", [b"\xff", b"a b", b"\n", b".."])
def test_a_file_with_a_name_that_is_no_rank_is_no_page(rank: bytes, tmp_path: Path) -> None:
    """Ranks go into messages and logs: one odd name must not break the status of all."""
    good, _ = make(tmp_path)
    odd = os.fsencode(tmp_path) + b"/" + rank + os.fsencode(good.name.removeprefix("0"))
    os.link(tmp_path / good.name, odd)
    assert set(PageReader(tmp_path).read(time.monotonic())) == {"0"}


def write(content: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content)


def good_bytes(directory: Path, **changes: int) -> bytes:
    made, _ = make(directory)
    for name, value in changes.items():
        made.words[getattr(page, name)] = value
    return bytes(made.words)


def test_garbage_is_ignored(tmp_path: Path) -> None:
    pages, scratch = tmp_path / "pages", tmp_path / "scratch"
    pages.mkdir()
    scratch.mkdir()
    good = good_bytes(scratch)
    name = page.page_name("g", os.getpid())
    garbage: list[tuple[str, Callable[[Path], object]]] = [
        ("a.1.page", write(b"")),
        ("b.1.page", write(b"\0" * page.PAGE_BYTES)),
        ("c.1.page", write(os.urandom(page.PAGE_BYTES))),
        ("d.1.page", write(good)),  # the pid inside is another one
        ("e.1.page", write(good * 2)),
        ("f.page", write(good)),
        ("f.x.page", write(good)),
        (".1.page", write(good)),
        (name, lambda path: path.symlink_to(scratch / page.page_name("0", os.getpid()))),
        ("h.1.page", os.mkfifo),
        ("i.1.page", lambda path: path.mkdir()),
        ("j" * 200 + ".1.page", write(good)),
        ("notes.txt", write(b"hello")),
    ]
    for file_name, put in garbage:
        put(pages / file_name)
    reader = PageReader(pages)
    for _ in range(page_reader.UNFINISHED_READS + 2):
        assert reader.read(time.monotonic()) == {}
    make(pages, "0")
    assert list(reader.read(time.monotonic())) == ["0"]
    reader.close()


def test_a_page_of_another_version_or_owner_is_ignored(tmp_path: Path) -> None:
    made, _ = make(tmp_path)
    assert PageReader(tmp_path, expect_uid=os.getuid() + 1).read(1.0) == {}
    made.words[page.W_VERSION] = 2
    assert PageReader(tmp_path).read(1.0) == {}


def test_a_page_that_is_still_being_made_is_found_when_it_is_done(tmp_path: Path) -> None:
    made, _ = make(tmp_path)
    made.words[page.W_MAGIC] = 0
    reader = PageReader(tmp_path)
    assert reader.read(1.0) == {}
    made.words[page.W_MAGIC] = page.MAGIC
    assert list(reader.read(1.0)) == ["0"]


def test_truncated_removed_and_missing_never_raise(tmp_path: Path) -> None:
    pages = tmp_path / "pages"
    reader = PageReader(pages)
    assert reader.read(1.0) == {}
    pages.mkdir()
    made, _ = make(pages)
    make(pages, "1")
    assert sorted(reader.read(1.0)) == ["0", "1"]
    os.truncate(pages / made.name, 10)
    assert sorted(reader.read(1.0)) == ["1"]
    (pages / page.page_name("1", os.getpid())).unlink()
    assert reader.read(1.0) == {}
    (pages / made.name).unlink()
    pages.rmdir()
    assert reader.read(1.0) == {}
    reader.close()


def test_files_stay_open_and_close_lets_them_go(tmp_path: Path) -> None:
    make(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    reader = PageReader(tmp_path)
    reader.read(1.0)
    opened = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        reader.read(1.0)
    assert len(os.listdir("/proc/self/fd")) == opened
    reader.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert list(reader.read(1.0)) == ["0"]
    reader.close()


def test_a_slot_that_never_settles_is_left_out_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, ring = make(tmp_path)
    hanging = ring.begin(1, 1, "decode")
    moving = page.HEADER_WORDS + page.SLOT_WORDS * ring.begin(2, 2, "decode")
    directory = os.open(tmp_path, os.O_RDONLY)
    opened = open_page(directory, made.name, None)
    assert opened is not None
    plain = OpenPage.read

    def read_while_it_moves(self: OpenPage) -> bytes:
        made.words[moving + page.S_NUM_SEQS] += 1
        return plain(self)

    monkeypatch.setattr(OpenPage, "read", read_while_it_moves)
    words, in_motion = settled(opened)
    assert in_motion
    assert words[moving : moving + page.SLOT_WORDS] == (0,) * page.SLOT_WORDS
    assert words[page.HEADER_WORDS + page.SLOT_WORDS * hanging] == hanging
    opened.close()
    os.close(directory)


def test_without_a_descriptor_no_page_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out of descriptors for minutes, it finds the page when there are some again."""

    def none_left(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with engine(IDLE_ENGINE, agent_environment(pages=tmp_path)) as process:
        assert line_from(process)
        reader = PageReader(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(page_reader, "open_page", none_left)
            for _ in range(3 * page_reader.UNFINISHED_READS):
                assert reader.read(time.monotonic()) == {}
        assert set(reader.read(time.monotonic())) == {"0"}
        reader.close()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_only_a_want_of_descriptors_says_nothing_of_the_file(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise OSError(number, "none left")

    monkeypatch.setattr("os.open", fail)
    with pytest.raises(OSError, match="none left"):
        page_file.open_page(-1, "0.5.page", None)
    number = errno.ELOOP
    assert page_file.open_page(-1, "0.5.page", None) is None
