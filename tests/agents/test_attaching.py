"""Agents of processes that something else starts: who comes first, and what happens in between."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from stepwarden.edge.page_reader import PageReader, PageView
from stepwarden_agent.invitation import Invitations, read_invitation
from stepwarden_agent.page_file import nameless_page, private_page
from stepwarden_agent.page_move import in_place, move_page
from stepwarden_agent.progress import Ring
from stepwarden_agent.settings import Settings, read_settings
from stepwarden_proto import page
from support.agent_process import engine, line_from, run_engine, short_directory
from support.beat_server import BeatServer
from support.system_calls import needs_strace, system_calls
from support.waiting import wait_for

STEPPING = """
import sys, threading, time
from stepwarden_agent import Agent
agent = Agent.from_env(phase="loading")
agent.phase("idle")
ended = threading.Event()
def step():
    while not ended.is_set():
        agent.end(agent.begin(4, 4, "decode"))
        time.sleep(0.001)
    print(agent.begin(7, 7, "decode"), flush=True)
    ended.clear()
threading.Thread(target=step, daemon=True).start()
print("steps", flush=True)
sys.stdin.readline()
ended.set()
sys.stdin.readline()
"""


@pytest.fixture
def home() -> Iterator[Path]:
    with short_directory() as directory:
        yield directory / "engine"


def invite(home: Path, target: str, name: str, **more: object) -> None:
    told = {"worker": "w", "incarnation": name, "target": target, "token": f"token of {name}"}
    scratch = home / "life.new"
    scratch.write_text(json.dumps(told | {"interval": 0.2} | more))
    scratch.replace(home / page.INVITATION)


def make_home(home: Path) -> Path:
    pages = home / page.ATTACHED_PAGES
    pages.mkdir(parents=True, mode=0o700)
    return pages


def attached_environment(home: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("STEPWARDEN_")}
    return kept | {page.ENV_ATTACH: str(home)}


def only_view(pages: Path) -> PageView | None:
    reader = PageReader(pages)
    try:
        return reader.read(time.monotonic()).get("0")
    finally:
        reader.close()


def test_settings_name_the_directory_and_no_life(tmp_path: Path) -> None:
    settings = read_settings({page.ENV_ATTACH: str(tmp_path)})
    pages = str(tmp_path / "pages")
    assert settings == Settings("", "", "", "", pages, attach=str(tmp_path))
    # What a supervisor starts itself is told its life, whatever else the environment says.
    both = {page.ENV_ATTACH: str(tmp_path), page.ENV_TARGET: "unix:/x"}
    assert read_settings(both) == Settings("", "", "unix:/x", "", "")


def test_the_engine_is_first_and_follows_every_invitation(home: Path) -> None:
    target = f"unix:{home.parent}/agent.sock"
    log = home.parent / "beats"
    with engine(STEPPING, attached_environment(home)) as process:
        assert line_from(process) == "steps"
        with BeatServer(target, log) as server:
            pages = make_home(home)
            invite(home, target, "w.1.aa")
            wait_for(server.beats)
            view = only_view(pages)
            assert view is not None
            assert (view.holder, view.pid) == (process.pid, process.pid)
            first = server.beats()[-1]
            assert (first["incarnation"], first["token"]) == ("w.1.aa", "token of w.1.aa")
            invite(home, target, "w.2.bb")
            wait_for(lambda: server.beats()[-1]["incarnation"] == "w.2.bb")
            # A daemon that is gone with all its files, and the next.
            shutil.rmtree(home)
            pages = make_home(home)
            invite(home, "unix:/nowhere", "w.3.cc", socket="../agent.sock")
            wait_for(lambda: server.beats()[-1]["incarnation"] == "w.3.cc")
            assert server.beats()[-1]["page"] == f"0.{process.pid}.page"
        assert process.stdin is not None
        process.stdin.write("freeze\n")
        process.stdin.flush()
        begun = int(line_from(process))
        view = only_view(pages)
        assert view is not None
        assert [step.number for step in view.steps] == [begun]
        assert view.steps_begun == begun


def test_without_any_supervisor_it_is_a_harmless_recorder(home: Path) -> None:
    done = run_engine(
        "import os\n"
        "from stepwarden_agent import Agent\n"
        "agent = Agent.from_env()\n"
        "for _ in range(1000):\n"
        "    with agent.step(1, 1): pass\n"
        "child = os.fork()\n"
        "with agent.step(1, 1): pass\n"
        "agent.close()\n"
        "if not child: os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n",
        attached_environment(home),
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_forked_child_that_steps_comes_too(home: Path) -> None:
    code = (
        "import os, sys\n"
        "from stepwarden_agent import Agent\n"
        "agent = Agent.from_env()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    agent.begin(3, 3, 'decode')\n"
        "    print(os.getpid(), flush=True)\n"
        "    sys.stdin.readline()\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
    )
    with engine(code, attached_environment(home)) as process:
        child = int(line_from(process))
        pages = make_home(home)
        wait_for((pages / f"0.{child}.page").exists)
        wait_for(lambda: (view := only_view(pages)) is not None and bool(view.steps))
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(20) == 0


def test_a_page_moves_while_steps_are_written_and_none_is_lost(tmp_path: Path) -> None:
    moving = nameless_page("idle")
    ring = Ring(lambda: None)
    ring.attach(moving.words)
    stop = threading.Event()
    handles: list[int] = []

    def step() -> None:
        behind: list[int] = []
        while not stop.is_set():
            behind.append(ring.begin(2, 2, "decode"))
            if len(behind) > 4:
                ring.end(behind.pop(0))
        handles.extend(behind)

    threads = [threading.Thread(target=step), threading.Thread(target=watch, args=(ring, stop))]
    for thread in threads:
        thread.start()
    for turn in range(40):
        pages = tmp_path / str(turn)
        pages.mkdir(mode=0o700)
        assert not in_place(moving, str(pages))
        move_page(moving, str(pages), "0")
        assert in_place(moving, str(pages))
    stop.set()
    for thread in threads:
        thread.join()
    view = only_view(pages)
    assert view is not None
    assert [shown.number for shown in view.steps] == handles
    assert (view.steps_begun, view.overflows) == (handles[-1], 0)
    for handle in handles:
        ring.end(handle)
    view = only_view(pages)
    assert view is not None
    assert view.steps == ()


def watch(ring: Ring, stop: threading.Event) -> None:
    while not stop.wait(0.001):
        ring.watch()


def test_a_page_that_cannot_move_stays_where_it_is(tmp_path: Path) -> None:
    stays = nameless_page("idle")
    with pytest.raises(OSError, match="No such file"):
        move_page(stays, str(tmp_path / "none"), "0")
    with pytest.raises(OSError, match="no memory that could be moved"):
        move_page(private_page("idle"), str(tmp_path), "0")
    stays.words[page.W_TICK] = 7
    move_page(stays, str(tmp_path), "0")
    assert int.from_bytes((tmp_path / stays.name).read_bytes()[64:72], "little") == 7


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"worker": 1}', '{"worker": "w"}', "\x00" * 70000]
)
def test_nonsense_is_no_invitation_and_a_good_one_later_is(text: str, tmp_path: Path) -> None:
    (tmp_path / page.INVITATION).write_text(text)
    with pytest.raises(ValueError, match=r"\w"):
        read_invitation(str(tmp_path))
    follows = Invitations(str(tmp_path), "0", nameless_page("idle"))
    assert follows.look(1.0) is None
    invite(tmp_path, "unix:/x", "w.1.aa", interval="soon")
    assert follows.look(1.5) is None
    news = follows.look(2.5)
    assert news is not None
    assert news.settings is not None
    assert (news.settings.token, news.settings.interval) == ("token of w.1.aa", 1.0)
    (tmp_path / page.INVITATION).unlink()
    news = follows.look(4.0)
    assert news is not None
    assert news.settings is None


@needs_strace
def test_steps_make_no_system_call_before_and_after_the_move(home: Path) -> None:
    code = (
        "import os\n"
        "from stepwarden_agent import Agent\n"
        "from stepwarden_proto.page import ENV_ATTACH\n"
        "agent = Agent.from_env()\n"
        "def steps():\n"
        "    os.getppid()\n"
        "    for _ in range(5_000): agent.end(agent.begin(4, 4, 'decode'))\n"
        "    os.getppid()\n"
        "agent.end(agent.begin(4, 4, 'decode'))\n"
        "steps()\n"
        "os.makedirs(os.environ[ENV_ATTACH] + '/pages')\n"
        "while not agent._page.name: pass\n"
        "steps()\n"
        "os._exit(0)\n"
    )
    calls = system_calls(code, attached_environment(home), home.parent / "trace")
    _, before, _, after, _ = calls
    assert (before, after) == ([], [])
