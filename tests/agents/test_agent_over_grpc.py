"""Beats over a real gRPC server: what is sent when, proxies, and coming back after an outage."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from stepwarden.edge.page_reader import PageReader
from support.agent_process import (
    INCARNATION,
    TOKEN,
    agent_environment,
    engine,
    line_from,
    short_directory,
    wait_ticks,
)
from support.beat_server import BeatServer
from support.daemon import free_port
from support.heard_engine import heard
from support.lateness import HostLateness

ENGINE = """
import sys
from stepwarden_agent import Agent
agent = Agent.from_env(rank="3", phase="loading")
for line in sys.stdin:
    exec(line)
"""


def give(process: object, line: str) -> None:
    stdin = process.stdin  # type: ignore[attr-defined]
    stdin.write(line + "\n")
    stdin.flush()


def test_what_a_beat_says(tmp_path: Path) -> None:
    with heard(ENGINE, tmp_path) as (server, process):
        first = server.wait_for(lambda _: True)
        assert first["reason"] == "BEAT_REASON_ATTACH"
        assert (first["worker"], first["incarnation"], first["rank"]) == ("w", INCARNATION, "3")
        assert (first["token"], first["phase"]) == (TOKEN, "PHASE_LOADING")
        assert (int(first["pid"]), first["page"]) == (process.pid, f"3.{process.pid}.page")
        assert float(first["cpu_seconds"]) > 0
        assert int(first["rss_bytes"]) > 1_000_000
        give(process, "agent.phase('idle')")
        server.wait_for(lambda beat: beat.get("reason") == "BEAT_REASON_PHASE")
        give(process, "h = agent.begin(4, 100, 'prefill')")
        busy = server.wait_for(lambda beat: beat.get("reason") == "BEAT_REASON_BUSY")
        assert (busy["phase"], busy["in_flight"]) == ("PHASE_PREFILL", 1)
        assert (busy["oldest"]["num_seqs"], busy["oldest"]["num_tokens"]) == ("4", "100")
        give(process, "agent.end(h)")
        idle = server.wait_for(lambda beat: beat.get("reason") == "BEAT_REASON_IDLE")
        assert (idle["phase"], idle["steps_ended"]) == ("PHASE_IDLE", "1")
        give(process, "l = agent.lease('weight swap', 120.0)")
        lease = server.wait_for(lambda beat: "lease" in beat)
        assert (lease["lease"]["name"], lease["lease"]["seconds"]) == ("weight swap", 120.0)
        give(process, "l.release(); agent.work(unfinished=2); agent.loop_turn()")
        work = server.wait_for(lambda beat: "work" in beat)
        assert (work["work"]["unfinished"], "lease" in work) == ("2", False)
        give(process, "agent.close()")
        server.wait_for(lambda beat: beat.get("reason") == "BEAT_REASON_BYE")
        seqs = [int(beat["seq"]) for beat in server.beats()]
        assert seqs == sorted(set(seqs))


PROXY = "http://127.0.0.1:9"


def test_an_agent_after_a_closed_one_has_a_page_and_newer_numbers(tmp_path: Path) -> None:
    """An engine that is taken down and set up again in one process is not silent for ever."""
    code = (
        "import sys\n"
        "from stepwarden_agent import Agent\n"
        "first = Agent.from_env()\n"
        "sys.stdin.readline()\n"
        "first.close()\n"
        "second = Agent.from_env()\n"
        "assert second is not first\n"
        "second.begin(7, 7, 'decode')\n"
        "sys.stdin.readline()\n"
    )
    with heard(code, tmp_path) as (server, process):
        server.wait_for(lambda _: True)
        give(process, "close")
        server.wait_for(lambda beat: beat.get("oldest", {}).get("num_seqs") == "7")
        numbers = [int(beat["seq"]) for beat in server.beats()]
        assert numbers == sorted(set(numbers))
        view = PageReader(tmp_path).read(time.monotonic())["0"]
        assert (view.holder, view.closed) == (process.pid, False)
        assert [step.num_seqs for step in view.steps] == [7]


@pytest.mark.parametrize("kind", ["127.0.0.1", "localhost", "unix"])
def test_o_grpc_2_a_proxy_in_the_environment_does_not_matter(kind: str, tmp_path: Path) -> None:
    with short_directory() as folder:
        target = f"unix:{folder}/s" if kind == "unix" else f"{kind}:{free_port()}"
        environment = agent_environment(target, tmp_path)
        names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "grpc_proxy")
        environment |= dict.fromkeys(names, PROXY)
        for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
            environment.pop(name, None)
        code = (
            f"{ENGINE.split('for line', maxsplit=1)[0]}\nimport os\n"
            f"assert os.environ['http_proxy'] == {PROXY!r}\nsys.stdin.readline()\n"
            f"assert os.environ['http_proxy'] == {PROXY!r}\n"
        )
        with (
            BeatServer(target, tmp_path / "log") as server,
            engine(code, environment) as process,
        ):
            server.wait_for(lambda beat: int(beat["seq"]) >= 2)
            give(process, "")
            assert process.wait(20) == 0


@pytest.mark.parametrize("kind", ["127.0.0.1", "unix", "unix with a new directory"])
def test_o_grpc_1_an_agent_is_back_soon_after_the_supervisor(kind: str, tmp_path: Path) -> None:
    """The outage lasts long enough for the backoff to reach its cap."""
    with short_directory() as folder, HostLateness() as host:
        home = folder / "d"
        home.mkdir()
        target = f"unix:{home}/s" if kind.startswith("unix") else f"{kind}:{free_port()}"
        server = BeatServer(target, tmp_path / "log").start()
        try:
            with engine(ENGINE, agent_environment(target, tmp_path)) as process:
                server.wait_for(lambda beat: int(beat["seq"]) >= 2)
                server.kill()
                gone = int(server.beats()[-1]["seq"])
                if "new directory" in kind:
                    (home / "s").unlink()
                    home.rmdir()
                wait_ticks(tmp_path, 6, "3")
                assert process.poll() is None
                home.mkdir(exist_ok=True)
                server.start()
                up = time.monotonic()
                back = server.wait_for(lambda beat: int(beat["seq"]) > gone)
                assert back["reason"] == "BEAT_REASON_ATTACH"
                assert back["at"] - up < 3.0 + 2 * host.worst
        finally:
            server.kill()


def test_after_a_freeze_the_newest_message_comes_and_not_a_pile(tmp_path: Path) -> None:
    with heard(ENGINE, tmp_path) as (server, process):
        server.wait_for(lambda beat: int(beat["seq"]) >= 2)
        server.freeze()
        wait_ticks(tmp_path, 4, "3")
        assert process.poll() is None
        before = len(server.beats())
        server.thaw()
        thawed = time.monotonic()
        server.wait_for(lambda beat: beat["at"] > thawed)
        # At most the one that was in flight and the one that was due since.
        soon = [beat for beat in server.beats()[before:] if beat["at"] < thawed + 0.5]
        assert len(soon) <= 3


CLOSE_ALL = """
import os, sys
from stepwarden_agent import Agent
agent = Agent.from_env(rank="3")
sys.stdin.readline()
os.closerange(3, 256)
agent.begin(5, 5, "decode")
sys.stdin.readline()
"""


def test_an_engine_that_closes_every_descriptor_is_heard_again(tmp_path: Path) -> None:
    """As daemons do on their way into the background."""
    with heard(CLOSE_ALL, tmp_path) as (server, process):
        server.wait_for(lambda _: True)
        give(process, "close")
        server.wait_for(lambda beat: beat.get("oldest", {}).get("num_seqs") == "5")
        give(process, "end")
        assert process.wait(20) == 0


FORK = """
import os, sys
from stepwarden_agent import Agent
agent = Agent.from_env(rank="3")
sys.stdin.readline()
child = os.fork()
if child == 0:
    kinds = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")[:-1]]
    print(sorted(kind for kind in kinds if "socket" in kind or "event" in kind), flush=True)
    sys.stdin.readline()
    sys.exit(0)
os.waitpid(child, 0)
sys.stdin.readline()
"""


def test_a_forked_child_holds_nothing_of_the_stream(tmp_path: Path) -> None:
    """Nor does its end disturb the parent's."""
    with heard(FORK, tmp_path) as (server, process):
        server.wait_for(lambda _: True)
        give(process, "fork")
        assert line_from(process) == "[]"
        give(process, "end of the child")
        gone = int(server.beats()[-1]["seq"])
        server.wait_for(lambda beat: int(beat["seq"]) > gone + 1)
        give(process, "end")
        assert process.wait(20) == 0
        reasons = [beat["reason"] for beat in server.beats() if "reason" in beat]
        assert reasons.count("BEAT_REASON_ATTACH") == 1
        assert reasons.count("BEAT_REASON_BYE") == 1


def test_the_agent_adds_one_thread_and_no_module_of_grpc(tmp_path: Path) -> None:
    code = (
        "import sys, threading\n"
        "from stepwarden_agent import Agent\n"
        "agent = Agent.from_env()\n"
        "sys.stdin.readline()\n"
        "assert threading.active_count() == 2\n"
        "import os\n"
        "assert len(os.listdir('/proc/self/task')) == 2\n"
        "assert not any(name.split('.')[0] == 'grpc' for name in sys.modules)\n"
    )
    with heard(code, tmp_path) as (server, process):
        server.wait_for(lambda beat: int(beat["seq"]) >= 2)
        give(process, "")
        assert process.wait(20) == 0
