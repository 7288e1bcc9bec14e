"""Workers that something else starts (D5): found by agents, ended, awaited, left alone."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from stepwarden_proto.page import ENV_ATTACH, W_TICK
from stepwarden_proto.v1 import supervisor_pb2
from support import processes
from support.daemon import Daemon
from support.pid_namespace import Contained
from support.platform import Platform, platform
from support.waiting import wait_for

SECOND_RANK = """
import signal
from stepwarden_agent import Agent
agent = Agent.from_env(rank="1")
while True:
    signal.pause()
"""

pytestmark = pytest.mark.timeout(120)
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root may do that")


def body(expect_external: str = "30s", more: str = "") -> str:
    return f"""
backends:
  quick: {{step: {{base: 1s, per_seq: 0s, max: 20s}}}}
workers:
  engine:
    backend: quick
    attach: {{expect_user: "{os.getuid()}"}}
    heartbeat: {{timeout: 5s}}
    startup: {{budget: 20s, first_step: 1s}}
    retry: {{window: 1s}}
    stop: {{signal: TERM, grace: 2s}}
    restart: {{"on": never, expect_external: {expect_external}}}
{more}"""


def invited(daemon: Daemon) -> dict[str, str]:
    """The environment of an attached worker."""
    ours = {k: v for k, v in daemon.environment().items() if k != processes.MARK_VARIABLE}
    return ours | {ENV_ATTACH: str(daemon.directory / "run/attach/engine")}


@contextmanager
def engine(daemon: Daemon, script: str = "attach; idle") -> Iterator[Platform]:
    with platform(invited(daemon), script) as made:
        yield made


def healthy(daemon: Daemon, pid: int = 0) -> supervisor_pb2.Worker:
    def seen(worker: supervisor_pb2.Worker) -> bool:
        return worker.state == "HEALTHY" and pid in (0, worker.pid)

    return daemon.wait_status("engine", seen, f"HEALTHY with pid {pid}")


def newest(made: Platform, lives: int) -> int:
    wait_for(lambda: len(made.lives) >= lives)
    return made.lives[lives - 1]


def test_d5_the_daemon_is_there_first() -> None:
    with Daemon(body()) as daemon:
        daemon.wait_event(lambda event: event.kind == "held", worker="engine")
        with engine(daemon) as made:
            worker = healthy(daemon)
            assert worker.pid == made.lives[-1]
            assert made.stub.status()["incarnation"] == ""


def test_d5_the_engine_is_there_first_and_its_hang_is_seen() -> None:
    """Its page is in nobody's sight when the step begins, and is put before our eyes later."""
    daemon = Daemon(body())
    with engine(daemon, "attach; steps 0.01 0.01; step 50 | attach; idle") as made:
        first = newest(made, 1)
        made.stub.send("freeze")
        with daemon:
            daemon.wait_transition("engine", "HEALTHY")
            daemon.wait_transition("engine", "UNHEALTHY")
            daemon.wait_transition("engine", "DEAD")
            assert healthy(daemon, newest(made, 2)).incarnation == "2"
            assert made.lives[0] == first
            made.hold()
            os.kill(made.lives[-1], signal.SIGKILL)
            daemon.wait_transition("engine", "RESTARTING", after=0)


def test_d5_a_hang_ends_the_attached_process_alone_and_the_platform_brings_it_back() -> None:
    with Daemon(body()) as daemon, engine(daemon, "attach; ignore-term; idle|attach; idle") as made:
        first = healthy(daemon)
        made.stub.send("freeze")
        daemon.wait_transition("engine", "UNHEALTHY")
        dead = daemon.wait_transition("engine", "DEAD")
        waiting = daemon.wait_transition("engine", "RESTARTING", after=dead.id)
        assert "whoever started it has 30.0 s to start it again" in waiting.sentence
        again = healthy(daemon, newest(made, 2))
        assert (first.incarnation, again.incarnation) == ("1", "2")
        assert [(s.pid, s.name) for s in made.stub.signals()] == [(first.pid, "SIGTERM")]
        assert made.runs
        assert len(made.lives) == 2


def test_d5_not_back_in_time_is_failed_and_back_later_is_healthy() -> None:
    with Daemon(body("2s")) as daemon, engine(daemon) as made:
        first = healthy(daemon)
        made.hold()
        os.kill(first.pid, signal.SIGKILL)
        failed = daemon.wait_transition("engine", "FAILED")
        assert "no agent of it came within 2 s (expect_external)" in failed.sentence
        made.release()
        back = daemon.wait_transition("engine", "STARTING", after=failed.id)
        assert back.sentence == "its agent is there at last"
        assert healthy(daemon, newest(made, 2)).incarnation == "2"


def test_d5_a_killed_daemon_adopts_it_with_the_same_pid_and_no_signal() -> None:
    with Daemon(body()) as daemon, engine(daemon) as made:
        first = healthy(daemon)
        daemon.kill()
        daemon.start()
        again = healthy(daemon, first.pid)
        assert again.incarnation == first.incarnation
        assert made.stub.signals() == []
        assert len(made.lives) == 1


def test_d5_it_is_restarted_while_no_daemon_looks() -> None:
    with Daemon(body()) as daemon, engine(daemon) as made:
        first = healthy(daemon)
        daemon.kill()
        os.kill(first.pid, signal.SIGKILL)
        second = newest(made, 2)
        daemon.start()
        assert healthy(daemon, second).incarnation == "2"
        assert made.stub.signals() == []
        assert len(made.lives) == 2


def test_d5_an_ending_daemon_leaves_it_alone_even_without_its_runtime_directory() -> None:
    """systemd takes the runtime directory away with the service; the next daemon makes it anew."""
    daemon = Daemon(body())
    with engine(daemon) as made, daemon:
        first = healthy(daemon)
        daemon.terminate()
        assert daemon.process is not None
        assert daemon.process.wait(20) == 0
        shutil.rmtree(daemon.directory / "run")
        made.stub.send("step 20")
        daemon.start()
        again = healthy(daemon, first.pid)
        assert again.incarnation == first.incarnation
        moving = again.ranks[0].steps_ended
        daemon.wait_status(
            "engine", lambda seen: seen.ranks[0].steps_ended > moving + 20, "stepping"
        )
        assert made.stub.signals() == []
        assert len(made.lives) == 1
        made.hold()
        os.kill(first.pid, signal.SIGKILL)


def test_d5_a_stop_ends_it_and_the_platforms_restart_waits_for_the_start() -> None:
    with Daemon(body()) as daemon, engine(daemon) as made:
        first = healthy(daemon)
        assert daemon.cli("stop", "engine", "--config", str(daemon.config)).returncode == 0
        stopped = daemon.wait_state("engine", "STOPPED")
        second = newest(made, 2)
        made.stub.send("step 20")
        assert "every process is gone" in stopped.sentence
        page = daemon.directory / f"run/attach/engine/pages/0.{second}.page"
        wait_for(page.exists)
        assert daemon.status()["engine"].state == "STOPPED"
        assert daemon.cli("start", "engine", "--config", str(daemon.config)).returncode == 0
        assert healthy(daemon, second).incarnation == "2"
        assert [s.pid for s in made.stub.signals()] == [first.pid]


def test_d5_one_that_failed_to_come_can_be_stopped_and_started() -> None:
    with Daemon(body("500ms")) as daemon:
        daemon.wait_transition("engine", "FAILED")
        config = str(daemon.config)
        assert daemon.cli("stop", "engine", "--config", config).returncode == 0
        daemon.wait_state("engine", "STOPPED")
        invitation = daemon.directory / "run/attach/engine/life.json"
        assert not invitation.exists()
        with engine(daemon) as made:
            newest(made, 1)
            assert daemon.cli("start", "engine", "--config", config).returncode == 0
            assert healthy(daemon, made.lives[-1]).incarnation == "2"
            assert invitation.stat().st_mode & 0o777 == 0o600


def test_d5_no_step_is_judged_while_it_drains() -> None:
    with Daemon(body(more="    drain: 30s\n")) as daemon, engine(daemon) as made:
        healthy(daemon)
        made.stub.send("phase draining")
        made.stub.send("freeze 4")
        daemon.wait_status(
            "engine", lambda seen: seen.ranks[0].phase == "draining", "draining", 10.0
        )
        wait_for(lambda: made.stub.status()["mode"] == "idle", 15.0)
        assert not [e for e in daemon.events("engine") if e.to_state == "UNHEALTHY"]


@as_root
def test_d5_a_process_of_another_pid_namespace_is_judged_and_never_signalled() -> None:
    with Contained(body()) as daemon, engine(daemon, "attach; idle") as made:
        assert healthy(daemon).pid == 0
        made.stub.send("freeze")
        dead = daemon.wait_transition("engine", "DEAD")
        waiting = daemon.wait_transition("engine", "RESTARTING", after=dead.id)
        assert "of another pid namespace and cannot be signalled" in waiting.sentence
        daemon.wait_event(lambda e: e.kind == "held" and e.incarnation == "2", worker="engine")
        # The one that hangs is not let in again, though its agent comes; its successor is.
        agent_turns(daemon.directory / "run/attach/engine/pages")
        assert daemon.status()["engine"].state == "STARTING"
        assert made.stub.signals() == []
        made.stub.tell("raise KILL")
        assert healthy(daemon).incarnation == "2"
        made.hold()
        made.stub.tell("exit 3")
        assert "ended" in daemon.wait_transition("engine", "DEAD", after=waiting.id).sentence


@as_root
def test_d5_out_of_reach_a_stop_runs_its_command_and_says_what_it_cannot() -> None:
    daemon = Contained(body())
    mark = daemon.directory / "stopped"
    command = f"stop: {{command: [touch, {mark}], "
    daemon.write_config(body().replace("stop: {signal: TERM, ", command))
    with daemon, engine(daemon) as made:
        healthy(daemon)
        config = str(daemon.config)
        assert daemon.cli("stop", "engine", "--config", config).returncode == 0
        stopped = daemon.wait_state("engine", "STOPPED")
        assert "cannot be signalled from here" in stopped.sentence
        assert mark.exists()
        assert daemon.cli("start", "engine", "--config", config).returncode == 0
        assert healthy(daemon).incarnation == "2"
        assert made.stub.signals() == []
        assert len(made.lives) == 1


def agent_turns(pages: Path) -> None:
    """Its beat thread has looked at the invitation again, and beaten by it."""
    page = next(pages.glob("*.page"))
    begun = tick_of(page)
    wait_for(lambda: tick_of(page) >= begun + 4)


def tick_of(page: Path) -> int:
    return int.from_bytes(page.read_bytes()[8 * W_TICK : 8 * W_TICK + 8], "little")


@as_root
def test_d5_a_page_of_another_user_is_not_believed() -> None:
    with Daemon(body().replace('expect_user: "0"', 'expect_user: "65534"')) as daemon:
        daemon.directory.chmod(0o755)
        with engine(daemon):
            daemon.wait_event(
                lambda e: e.kind == "refused" and "belongs to user 0" in e.sentence, worker="engine"
            )
            assert daemon.status()["engine"].state == "STARTING"


def test_d5_every_rank_is_ended_and_what_it_started_and_nobody_else() -> None:
    """Two processes with an agent, of which neither started the other."""
    with Daemon(body()) as daemon:
        second = subprocess.Popen([sys.executable, "-c", SECOND_RANK], env=invited(daemon))
        bystander = subprocess.Popen(["sleep", "600"])
        try:
            with engine(daemon, "attach; tree; idle | attach; idle") as made:
                daemon.wait_status(
                    "engine", lambda w: w.state == "HEALTHY" and len(w.ranks) == 2, "two ranks"
                )
                made.hold()
                main = made.lives[0]
                wait_for(lambda: len(processes.descendants(main)) == 3)
                below = processes.descendants(main)
                daemon.wait_event(lambda e: e.kind == "attached" and e.rank == "1")
                made.stub.send("freeze")
                dead = daemon.wait_transition("engine", "DEAD")
                daemon.wait_transition("engine", "RESTARTING", after=dead.id)
                assert second.wait(20) == -signal.SIGTERM
                assert not [child for child in below if processes.still_there(child)]
                assert bystander.poll() is None
                made.release()
                again = healthy(daemon, newest(made, 2))
                assert [rank.name for rank in again.ranks] == ["0"]
        finally:
            second.kill()
            second.wait(10)
            bystander.kill()
            bystander.wait(10)


def test_d5_one_that_is_no_longer_configured_is_let_go() -> None:
    with Daemon(body()) as daemon, engine(daemon) as made:
        first = healthy(daemon)
        daemon.kill()
        daemon.write_config(body().replace("  engine:", "  other:"))
        daemon.start()
        daemon.wait_event(lambda event: event.kind == "held", worker="other")
        wait_for(lambda: not (daemon.directory / "run/attach/engine/life.json").exists())
        assert made.stub.signals() == []
        assert made.lives == [first.pid]
        daemon.kill()
        daemon.write_config(body())
        daemon.start()
        assert healthy(daemon, first.pid).incarnation == "2"
