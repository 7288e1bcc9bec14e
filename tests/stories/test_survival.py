"""The daemon goes, its workers stay: killed, left, upgraded, without its state; and comes back."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing

import psutil
import pytest
from stepwarden.edge.state_copy import open_unchanged
from stepwarden.edge.state_file import NAME as DATABASE
from support.crew import Crew, Event, data, first, living, secrets_of, shell, stub
from support.daemon import free_port
from support.stub_control import STUB_COMMAND
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(150)

BEAT_TIMEOUT, BUDGET = 1.0, 2.0
DOWN = 10 * BEAT_TIMEOUT
"""The case has 3 s and 30 s; what counts is that the silence is ten times what is allowed."""

FLAT = {"step": {"base": BUDGET, "per_seq": 0, "max": "30s"}}
DEFAULTS = {
    "heartbeat": {"interval": "200ms", "timeout": BEAT_TIMEOUT},
    "startup": {"budget": "20s", "first_step": "5s"},
    "retry": {"window": "3s"},
    "restart": {"delay": "100ms", "jitter": 0, "limit": 3},
    "stop": {"grace": "4s"},
}
THREE = ("w1", "w2", "w3")
LEAVE = "  on_exit: leave\n"


def three(supervisor: str = "", tcp: int = 0) -> Crew:
    """Three workers that step; with `tcp` the agent of the third beats to that port."""
    workers = {name: stub("attach; step 5", backend="flat") for name in THREE}
    if tcp:
        del workers["w3"]["command"]
        line = f"STEPWARDEN_TARGET=127.0.0.1:{tcp} exec {shlex.join(STUB_COMMAND)}"
        workers["w3"]["shell"] = line
    return Crew(workers, supervisor=supervisor, backends={"flat": FLAT}, defaults=DEFAULTS)


def pids(crew: Crew) -> dict[str, int]:
    return {name: seen.pid for name, seen in crew.status().items()}


def say(crew: Crew, *words: str) -> None:
    """A command of the operator, which must be taken."""
    done = crew.cli(*words, "--config", str(crew.config))
    assert done.returncode == 0, done.stderr


def leave(crew: Crew, number: int = signal.SIGTERM) -> None:
    """End the daemon in order, without a look at who is left."""
    crew.tree()
    assert crew.process is not None
    crew.process.send_signal(number)
    assert crew.process.wait(30) == 0, crew.log_tail()
    crew.process = None
    crew._close_channel()


def after(crew: Crew, last: int, worker: str = "") -> list[Event]:
    return [event for event in crew.events(worker) if event.id > last]


def states(events: list[Event]) -> list[str]:
    return [event.to_state for event in events if event.to_state]


def wait_down(since: float, seconds: float) -> None:
    wait_for(lambda: time.monotonic() >= since + seconds, seconds + 5)


def test_o_state_2_a_killed_supervisor_finds_its_workers_and_judges_them_afresh() -> None:
    """Down for ten heartbeat timeouts; one worker has died once before, so counters are not 0."""
    with three() as crew:
        crew.ready()
        crew.stub("w1").tell("raise KILL")
        crew.wait_event(lambda e: e.to_state == "HEALTHY" and e.incarnation == "2", worker="w1")
        before = crew.status()
        last = crew.events()[-1].id
        crew.kill()
        gone = time.monotonic()
        wait_down(gone, DOWN)
        crew.start()
        crew.ready()
        now = crew.status()
        for name in THREE:
            assert states(after(crew, last, name)) == ["ADOPTED", "HEALTHY"]
            told = first(after(crew, last, name), lambda e: e.to_state == "ADOPTED")
            assert "unknown until something is seen of it" in told.sentence
            assert now[name].pid == before[name].pid
            assert now[name].incarnation == before[name].incarnation
            assert crew.stub(name).signals() == []
            assert now[name].uptime_seconds >= DOWN, "its own uptime, not that of its adoption"
            counters = [(s[name].deaths, s[name].restarts_used) for s in (before, now)]
            assert counters[0] == counters[1] == ((1, 1) if name == "w1" else (0, 0))
        # The windows are fresh, and they are there: one that hangs from now on is found.
        crew.stub("w2").send("freeze")
        crew.wait_transition("w2", "UNHEALTHY", after=last)
        crew.stub("w2").send("step 5")
        crew.wait_state("w2", "HEALTHY")
        assert [s.name for s in crew.stub("w2").signals()] == []


def test_o_state_2_workers_that_end_with_the_supervisor_are_each_started_exactly_once() -> None:
    """The other documented mode, on_exit: stop."""
    with three("  on_exit: stop\n") as crew:
        crew.ready()
        before = pids(crew)
        last = crew.events()[-1].id
        crew.stop()  # not one process is left
        crew.start()
        crew.ready()
        for name in THREE:
            started = [e for e in after(crew, last, name) if e.kind == "started"]
            assert [data(e)["pid"] for e in started] == [crew.status()[name].pid]
            assert crew.status()[name].pid != before[name]
            assert states(after(crew, last, name))[-2:] == ["STARTING", "HEALTHY"]
            assert crew.status()[name].deaths == 0


@pytest.mark.parametrize("sockets", ["new inode", "new directory"])
def test_o_grpc_1_agents_are_back_within_3_seconds_of_the_next_daemon(sockets: str) -> None:
    """Nobody is DEAD in between. The directory of the sockets may have been made anew; the third
    worker beats over TCP."""
    port = free_port()
    with three(f'  agents: {{listen: ["127.0.0.1:{port}"]}}\n', tcp=port) as crew:
        crew.ready()
        run = crew.directory / "run"
        inode = (run / "agent.sock").stat().st_ino
        before = pids(crew)
        last = crew.events()[-1].id
        crew.kill()
        gone = time.monotonic()
        wait_down(gone, DOWN / 2)
        (run / "agent.sock").rename(run / "kept")  # so that its inode is not given again
        if sockets == "new directory":
            run.rename(crew.directory / "old-run")
        crew.start()
        crew.ready()
        assert (run / "agent.sock").stat().st_ino != inode
        told = {name: secrets_of(before[name])["STEPWARDEN_TARGET"] for name in THREE}
        assert told["w3"] == f"127.0.0.1:{port}" != told["w1"]
        served = first(after(crew, last), lambda e: e.kind == "daemon")
        for name in THREE:
            back = first(after(crew, last, name), lambda e: e.to_state == "HEALTHY")
            assert back.monotonic - served.monotonic < 3.0 + crew.host.worst
            assert "DEAD" not in states(after(crew, last, name))
        assert pids(crew) == before


def wiped_database(crew: Crew) -> None:
    for path in (crew.directory / "state").glob(f"{DATABASE}*"):
        path.unlink()


def damaged_database(crew: Crew) -> None:
    wiped_database(crew)
    (crew.directory / "state" / DATABASE).write_bytes(b"\0" * 512)


def all_wiped(crew: Crew) -> None:
    """Nothing is left but the processes themselves."""
    shutil.rmtree(crew.directory / "state")
    shutil.rmtree(crew.directory / "run")


@pytest.mark.parametrize("lose", [wiped_database, damaged_database, all_wiped])
def test_o_state_1_workers_are_found_though_the_state_is_lost(lose: Callable[[Crew], None]) -> None:
    with three() as crew:
        crew.ready()
        before = pids(crew)
        crew.kill()
        lose(crew)
        crew.start()
        crew.ready()
        assert pids(crew) == before
        for name in THREE:
            assert crew.stub(name).signals() == []
            started = [e for e in crew.events(name) if e.kind == "started"]
            assert data(started[-1])["pid"] == before[name]
        # They are known well enough to be ended whole, and the next life has a new number.
        crew.stub("w1").tell("exit 3")
        again = crew.wait_event(lambda e: e.kind == "started" and e.incarnation == "2")
        assert again.worker == "w1"


def noted_pids(crew: Crew) -> dict[str, int]:
    """What the state database says of the lives, as the next daemon would read it."""
    with open_unchanged(crew.directory / "state" / DATABASE) as database:
        bodies = [json.loads(body) for (body,) in database.execute("SELECT body FROM life")]
    return {body["worker"]: body["pid"] for body in bodies}


def test_o_state_1_what_was_found_by_marks_alone_is_noted_for_the_next_daemon() -> None:
    with three() as crew:
        crew.ready()
        before = pids(crew)
        crew.kill()
        all_wiped(crew)
        crew.start()
        crew.ready()
        wait_for(lambda: noted_pids(crew) == before, 20, lambda: f"noted: {noted_pids(crew)}")


@pytest.mark.parametrize("lose", [wiped_database, all_wiped])
def test_a_main_process_that_ended_with_the_state_lost_is_not_taken_for_another_of_its_tree(
    lose: Callable[[Crew], None],
) -> None:
    script = "tree; attach; step 5 | attach; step 5"
    with Crew({"w1": stub(script, backend="flat")}, backends={"flat": FLAT}) as crew:
        crew.ready()
        main = crew.status()["w1"].pid
        family = psutil.Process(main).children(recursive=True)
        assert family
        crew.kill()
        psutil.Process(main).kill()
        lose(crew)
        assert any(process.is_running() for process in family)
        crew.start()
        crew.wait_event(lambda e: e.to_state == "HEALTHY" and e.incarnation == "2", worker="w1")
        assert not any(process.is_running() for process in family)
        dead = first(crew.events("w1"), lambda e: e.to_state == "DEAD")
        assert dead.cause == "exit", dead.sentence


def test_a_state_of_another_version_is_read_as_far_as_it_goes() -> None:
    """An upgrade, or one taken back: unknown keys and words in the notes lead to no second life,
    and the operator's word holds."""
    with three() as crew:
        crew.ready()
        say(crew, "stop", "w3")
        crew.wait_state("w3", "STOPPED")
        before = pids(crew)
        crew.kill()
        with closing(sqlite3.connect(crew.directory / "state" / DATABASE)) as database:
            database.execute(
                "UPDATE worker SET body ="
                " json_set(body, '$.of_a_later_version', json('[1, {}]'), '$.lifecycle', 'ODD')"
            )
            database.commit()
        crew.start()
        crew.ready("w1", "w2")
        seen = crew.status()
        assert {name: seen[name].pid for name in ("w1", "w2")} == {
            name: before[name] for name in ("w1", "w2")
        }
        assert (seen["w3"].state, seen["w3"].pid) == ("STOPPED", 0)


def test_on_exit_leave_leaves_every_worker_to_the_next_daemon() -> None:
    with three(LEAVE) as crew:
        crew.ready()
        before = pids(crew)
        last = crew.events()[-1].id
        leave(crew)
        assert sorted(living(list(before.values()))) == sorted(before.values())
        crew.start()
        crew.ready()
        assert pids(crew) == before
        for name in THREE:
            assert states(after(crew, last, name)) == ["ADOPTED", "HEALTHY"]
            assert crew.stub(name).signals() == []
        leave(crew, signal.SIGINT)
        assert not living(list(before.values())), "SIGINT always stops all"
        crew.start()
        crew.ready()
        leave(crew, signal.SIGINT)


def test_the_exit_of_an_adopted_worker_is_seen_at_once_and_it_is_restarted() -> None:
    with three() as crew:
        crew.ready()
        crew.kill()
        crew.start()
        crew.ready()
        last = crew.events()[-1].id
        began = time.monotonic()
        crew.stub("w1").tell("exit 7")
        dead = crew.wait_transition("w1", "DEAD", after=last)
        # Without a kernel that tells the exit of somebody else's child, a second is waited for it.
        assert dead.monotonic - began < 2.0 + 2 * crew.host.worst
        assert data(dead)["exit"] in ("exit code 7", "unknown exit status"), dead
        crew.wait_event(lambda e: e.to_state == "HEALTHY" and e.incarnation == "2", worker="w1")
        assert crew.status()["w1"].deaths == 1


def test_a_worker_that_died_while_nobody_looked_has_died_once_and_is_restarted() -> None:
    with three() as crew:
        crew.ready()
        last = crew.events()[-1].id
        crew.kill()
        crew.stub("w1").tell("exit 7")
        crew.start()
        crew.wait_event(lambda e: e.to_state == "HEALTHY" and e.incarnation == "2", worker="w1")
        assert states(after(crew, last, "w1")) == [
            *("ADOPTED", "DEAD", "RESTARTING", "STARTING", "HEALTHY")
        ]
        seen = crew.status()["w1"]
        assert (seen.deaths, seen.restarts_used) == (1, 1)


def test_a_restart_delay_and_failed_are_kept_over_a_kill() -> None:
    slow = {"delay": "8s", "jitter": 0, "limit": 5, "stable": "10m"}
    workers = {
        "waits": shell("exit 1", restart=slow),
        "failed": shell("exit 1", restart={"delay": 0, "limit": 1}),
    }
    with Crew(workers, defaults=DEFAULTS) as crew:
        died = crew.wait_transition("waits", "RESTARTING")
        failed = crew.wait_transition("failed", "FAILED")
        last = crew.events()[-1].id
        crew.kill()
        crew.start()
        again = crew.wait_event(lambda e: e.kind == "started" and e.id > last, worker="waits")
        assert again.monotonic - died.monotonic >= 8.0 - 0.2, "the whole delay, once"
        seen = crew.status()["failed"]
        assert (seen.state, seen.sentence) == ("FAILED", failed.sentence)
        assert not [e for e in after(crew, last, "failed") if e.kind == "started"]
        say(crew, "start", "failed", "--no-wait")
        crew.wait_event(lambda e: e.kind == "started" and e.id > last, worker="failed")


def test_the_life_of_a_worker_that_is_no_longer_configured_is_ended() -> None:
    with three() as crew:
        crew.ready()
        before = pids(crew)
        crew.kill()
        text = crew.config.read_text()
        crew.config.write_text(
            text.replace(
                '"w3":', '"other": {"shell": "sleep 1000", "agent": "none"}, "unused":'
            ).replace('"unused":', '"w4":')
        )
        crew.start()
        crew.ready("w1", "w2", "w4", "other")
        assert not living([before["w3"]])
        assert sorted(living([before["w1"], before["w2"]])) == sorted([before["w1"], before["w2"]])


@pytest.mark.parametrize("end", ["TERM", "KILL"])
def test_o_rstr_2_a_commanded_stop_outlives_the_daemon(end: str) -> None:
    """TERM and KILL of the daemon right after `stop` has answered, silence for ten heartbeat
    timeouts, a late beat; SIGHUP is no reload yet. `start` brings it back."""
    with three() as crew:
        crew.ready()
        old = psutil.Process(crew.status()["w1"].pid).environ()
        say(crew, "stop", "w1")
        (crew.kill if end == "KILL" else crew.stop)()
        crew.start()
        crew.ready("w2", "w3")
        last_stop = first(crew.events("w1"), lambda e: e.to_state == "STOPPED").id
        began = time.monotonic()
        late = crew.stub("w2").send(
            f"late {old['STEPWARDEN_INCARNATION']} 100 {old['STEPWARDEN_TOKEN']}"
        )
        assert late == "PERMISSION_DENIED"
        wait_down(began, DOWN)
        assert crew.status()["w1"].state == "STOPPED"
        assert crew.health("worker/w1") == "NOT_SERVING"
        assert states(after(crew, last_stop, "w1")) == []
        assert crew.status()["w1"].deaths == 0
        say(crew, "start", "w1")
        crew.ready("w1")


def test_o_rstr_2_a_stop_is_on_disk_before_it_is_answered() -> None:
    """The daemon is killed as soon as `stop --no-wait` returns, a tree that ignores TERM still
    there: it is ended by the next daemon, and stays so."""
    with Crew({"w": stub("ignore-term; attach; idle")}, defaults=DEFAULTS) as crew:
        crew.ready()
        pid = crew.status()["w"].pid
        say(crew, "stop", "w", "--no-wait")
        crew.kill()
        assert living([pid])
        crew.start()
        crew.wait_state("w", "STOPPED")
        assert not living([pid])
        assert crew.status()["w"].deaths == 0
        assert [e.incarnation for e in crew.events("w") if e.kind == "started"] == ["1"]
