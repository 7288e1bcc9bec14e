"""The daemon itself: killed, doubled, in the way of another, stopped, without a terminal."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from stepwarden.edge.state_file import NAME as DATABASE
from support import processes
from support.crew import PYTHON, Crew, data, first, living, send_beat, settings, shell, stub
from support.daemon import Daemon
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(120)

QUICK = {"restart": {"delay": "100ms", "jitter": 0, "limit": 2}, "stop": {"grace": "2s"}}


def pids(crew: Crew) -> list[int]:
    return [process.pid for process in crew.tree()]


def test_a_killed_daemons_workers_are_adopted_with_their_whole_trees() -> None:
    """One has a tree that holds locks and ignores TERM. The next daemon knows all of it: when its
    main dies, the rest is gone before the next life, and no lock is ever asked for while held."""
    workers = {
        "tree": stub("tree; ignore-term; attach; idle | tree; attach; idle"),
        "plain": stub(),
    }
    with Crew(workers, defaults=QUICK) as crew:
        crew.ready()
        mains = {name: crew.status()[name].pid for name in workers}
        old = [p for p in pids(crew) if "stub_worker" in " ".join(psutil.Process(p).cmdline())]
        assert len(old) == 5
        crew.kill()
        crew.start(limit=30)
        crew.ready()
        assert {name: crew.status()[name].pid for name in workers} == mains
        assert sorted(living(old)) == sorted(old)
        assert not [e for e in crew.events() if e.kind == "burial"]
        psutil.Process(mains["tree"]).kill()
        dead = crew.wait_transition("tree", "DEAD")
        assert data(dead)["exit"] in ("signal SIGKILL", "unknown exit status"), dead
        crew.wait_event(lambda e: e.to_state == "HEALTHY" and e.incarnation == "2", worker="tree")
        assert living(old) == [mains["plain"]]
        assert not (crew.directory / "tree" / "overlap").exists()


def test_a_burial_goes_on_in_the_next_daemon_and_the_worker_comes_back() -> None:
    """The daemon is killed while a tree that ignores TERM has its grace; the next one ends it,
    waits as long as the policy says, counts the death once, and starts the worker again."""
    workers = {"w": shell("trap '' TERM; sleep 1000 & wait")}
    with Crew(workers, defaults={**QUICK, "stop": {"grace": "4s"}}) as crew:
        crew.ready()
        main = psutil.Process(crew.status()["w"].pid)
        wait_for(main.children)
        old = [main.pid, *(child.pid for child in main.children())]
        main.kill()
        crew.wait_event(lambda e: "SIGTERM sent to" in e.sentence, worker="w")
        last = crew.events()[-1].id
        crew.kill()
        assert living(old) == old[1:]
        crew.start(limit=30)
        crew.wait_event(lambda e: e.to_state == "HEALTHY" and e.incarnation == "2", worker="w")
        assert not living(old)
        seen = crew.status()["w"]
        assert (seen.deaths, seen.restarts_used) == (1, 1)
        new = [e for e in crew.events("w") if e.id > last]
        assert [e.to_state for e in new if e.to_state] == ["RESTARTING", "STARTING", "HEALTHY"]
        gone = first(new, lambda e: "every process is gone" in e.sentence)
        assert gone.id < first(new, lambda e: e.kind == "started").id


def page_homes(crew: Crew) -> list[Path]:
    """What the state directory says: where this daemon's pages lie, and those of earlier ones."""
    return [Path(line) for line in (crew.directory / "state" / "page-homes").read_text().split()]


def test_the_count_of_lives_goes_on_after_a_crash_and_after_a_clean_stop() -> None:
    """A crash begins no new life; a lost database does not begin the count anew either."""
    with Crew({"w": stub()}, defaults=QUICK) as crew:
        crew.ready()
        for end, expected in ((crew.kill, "1"), (crew.stop, "2"), (crew.kill, "2")):
            last = crew.events()[-1].id
            end()
            crew.start(limit=30)
            crew.ready()
            assert crew.status()["w"].incarnation == expected
            new = [e for e in crew.events("w") if e.id > last and e.kind != "operator"]
            assert {e.incarnation for e in new if e.kind == "started"} == {expected}
        crew.kill()
        for path in (crew.directory / "state").glob(f"{DATABASE}*"):
            path.unlink()
        crew.start(limit=30)
        crew.ready()
        assert crew.status()["w"].incarnation == "2"
        assert "0" not in {e.incarnation for e in crew.events("w")}


@pytest.mark.parametrize("lives", [True, False])
def test_a_killed_daemons_page_home_is_taken_away_when_nothing_is_in_it(lives: bool) -> None:
    with Crew({"w": stub(autostart=lives)}, defaults=QUICK) as crew:
        if lives:
            crew.ready()
        (before,) = page_homes(crew)
        assert before.is_dir()
        crew.kill()
        crew.start(limit=30)
        if lives:
            crew.ready()
        after = page_homes(crew)[-1]
        assert before == after or before.exists() == lives
        crew.stop()
        assert not before.exists()
        assert not after.exists()
        assert after not in page_homes(crew)


def test_a_worker_that_was_renamed_meanwhile_is_not_doubled() -> None:
    """The daemon is killed, the file has another name for the worker now: the old one ends
    first, although nobody of its name is configured any more."""
    with Crew({"old": stub("tree; attach; idle")}, defaults=QUICK) as crew:
        crew.ready()
        lost = pids(crew)
        crew.kill()
        crew.config.write_text(crew.config.read_text().replace('"old":', '"new":'))
        crew.start()
        crew.ready("new")
        assert not living(lost)
        assert not (crew.directory / "old" / "overlap").exists()
        crew.stop()


def test_a_life_that_nobody_configures_any_more_is_ended_before_the_daemon_that_is_stopped() -> (
    None
):
    """It ignores TERM, and the daemon that ends it is told to stop meanwhile: no daemon may come
    after it, so nothing is left."""
    deaf = "trap '' TERM; while :; do sleep 0.2; done"
    with Crew({"old": shell(deaf)}, defaults=QUICK) as crew:
        crew.ready()
        main = crew.status()["old"].pid
        crew.kill()
        crew.config.write_text(crew.config.read_text().replace('"old":', '"new":'))
        crew.start()
        crew.wait_event(lambda event: event.kind == "burial")
        assert living([main])
        crew.stop(60)


def second(crew: Crew, config: Path) -> subprocess.CompletedProcess[str]:
    return crew.cli("run", str(config))


def test_a_second_daemon_on_the_same_state_exits_7_and_touches_nothing() -> None:
    """O-STATE-3, the first half: the one that runs keeps its workers, sockets and health."""
    with Crew({"w": stub()}) as crew:
        crew.ready()
        before = crew.status()["w"].pid
        tree = pids(crew)
        refused = second(crew, crew.config)
        assert refused.returncode == 7
        assert len(refused.stderr.strip().splitlines()) == 1
        assert f"pid {crew.pid}" in refused.stderr
        assert crew.status()["w"].pid == before
        assert pids(crew) == tree
        assert crew.health("worker/w") == "SERVING"
        assert [e for e in crew.events("w") if e.kind == "refused"] == []


def test_a_taken_port_is_named_and_no_worker_is_started(tmp_path: Path) -> None:
    mark = tmp_path / "started"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        daemon = Daemon(f"workers: {{w: {{shell: 'touch {mark}; sleep 1000', agent: none}}}}\n")
        daemon.health_address = f"127.0.0.1:{taken.getsockname()[1]}"
        text = daemon.config.read_text()
        line = next(line for line in text.splitlines() if "health:" in line)
        daemon.config.write_text(
            text.replace(line, f'  health: {{listen: ["{daemon.health_address}"]}}')
        )
        try:
            refused = daemon.cli("run", str(daemon.config))
        finally:
            left = daemon.left()
            processes.end(left)
            daemon._clean_up()
        assert daemon.health_address in refused.stderr
        assert "supervisor.health.listen" in refused.stderr
        assert refused.returncode == 7
        assert "stopped" not in refused.stderr
        assert "Traceback" not in refused.stderr
        assert not left
        assert not mark.exists()


def test_eight_workers_stop_together() -> None:
    """Each ignores TERM until its grace of 3 s is over: 8 x 3 s if they were stopped in a row."""
    grace = 3.0
    workers = {f"w{n}": stub("ignore-term; attach; step 4") for n in range(8)}
    with Crew(workers, defaults={"stop": {"grace": grace}}) as crew:
        crew.ready()
        tree = pids(crew)
        process = crew.process
        assert process is not None
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        took = time.monotonic() - began
        assert grace <= took <= grace + 3.0 + 4 * crew.host.worst
        assert not living(tree)


def test_nobody_reads_its_log(tmp_path: Path) -> None:
    """The reader of its standard error leaves: it goes on, and a worker is still replaced."""
    crew = Crew({"w": stub(), "dies": shell("sleep 0.2; exit 1")}, defaults=QUICK)
    try:
        process = subprocess.Popen(
            [PYTHON, "-m", "stepwarden", "run", str(crew.config)],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            env=crew.environment(),
            cwd=tmp_path,
        )
        crew.process = process
        assert process.stderr is not None
        process.stderr.close()
        crew._wait_until_it_answers(20.0)
        crew.ready("w")
        crew.wait_transition("dies", "FAILED")
        crew.stub("w").tell("exit 1")
        crew.wait_event(lambda e: e.to_state == "HEALTHY" and e.incarnation == "2", worker="w")
        crew.stop()
    finally:
        crew._clean_up()


def test_a_beat_with_an_unknown_token_is_refused_and_noted() -> None:
    with Crew({"w": stub()}) as crew:
        crew.ready()
        target = f"unix:{settings(crew).supervisor.agent_socket}"
        answer = send_beat(target, "guess", worker="w", incarnation="w.1", rank="9", seq=1)
        assert answer == "PERMISSION_DENIED"
        told = crew.wait_event(lambda e: e.kind == "refused")
        assert "token" in told.sentence
        assert "guess" not in told.sentence
        assert [rank.name for rank in crew.status()["w"].ranks] == ["0"]


def test_a_worker_that_cannot_be_started_is_named_and_counted(tmp_path: Path) -> None:
    """Missing, not executable, without its directory: a sentence each, FAILED at the limit; the
    others run."""
    plain = tmp_path / "plain.sh"
    plain.write_text("#!/bin/sh\n")
    plain.chmod(0o644)
    sick = tmp_path / "sick.sh"
    sick.write_text("#!/no/such/interpreter\n")
    sick.chmod(0o755)
    nowhere = str(tmp_path / "nowhere")
    workers = {
        "missing": {"command": [nowhere], "agent": "none"},
        "unknown": {"command": ["no-such-program-anywhere"], "agent": "none"},
        "plain": {"command": [str(plain)], "agent": "none"},
        "sick": {"command": [str(sick)], "agent": "none"},
        "homeless": {"command": ["/bin/sleep", "1000"], "agent": "none", "cwd": nowhere},
        "good": stub(),
    }
    named = {
        "missing": (nowhere, "No such file or directory"),
        "unknown": ("no-such-program-anywhere", "No such file or directory"),
        "plain": (str(plain), "Permission denied"),
        "sick": (str(sick), "No such file or directory"),
        "homeless": (nowhere, "No such file or directory"),
    }
    with Crew(workers, defaults=QUICK) as crew:
        for name, words in named.items():
            failed = crew.wait_transition(name, "FAILED")
            for word in words:
                assert word in failed.sentence, failed.sentence
            status = crew.status()[name]
            assert (status.cause, status.deaths, status.restarts_used) == ("spawn", 2, 2)
            assert status.pid == 0
        crew.ready("good")


def test_ctrl_c_in_a_terminal_ends_it_in_order() -> None:
    """SIGINT to the whole foreground group, as a terminal sends it, twice."""
    with Crew({"w": stub()}) as crew:
        crew.ready()
        tree = pids(crew)
        process = crew.process
        assert process is not None
        os.killpg(os.getpgid(crew.pid), signal.SIGINT)
        os.kill(crew.pid, signal.SIGINT)
        assert process.wait(30) == 0
        wait_for(lambda: not living(tree))
        assert "Traceback" not in crew.log_tail(1000)
