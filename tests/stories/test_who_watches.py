"""O-HLTH-3: a loop that is blocked or dead is seen from outside, ends, and costs no worker.

The daemon here is the real one with faults that a test lets loose; see support/faulty_daemon.py.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator

import pytest
from stepwarden.edge.health_table import STALE_AFTER_SECONDS
from stepwarden.errors import ExitCode
from support.crew import Crew, HealthLog, data, living, stub
from support.faulty_crew import FaultyCrew, answers_in_time
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(180)

LIMIT = 5.0
SETTINGS = f'  loop_limit: "{LIMIT:g}s"\n'


@pytest.fixture
def crew() -> Iterator[FaultyCrew]:
    """Two workers under a daemon that may stand still for five seconds."""
    workers = {name: stub("attach; step 5", restart={"delay": "100ms"}) for name in ("a", "b")}
    with FaultyCrew(workers, supervisor=SETTINGS) as made:
        made.ready()
        yield made


def adopted(crew: FaultyCrew, pids: dict[str, int]) -> None:
    """The workers live without a daemon, and the next one goes on with them."""
    assert living(list(pids.values())) == list(pids.values())
    crew.faulty = False
    crew.start()
    crew.ready()
    assert crew.pids() == pids
    assert crew.health("") == "SERVING"


def test_o_hlth_3_a_blocked_loop_is_not_serving_starves_the_watchdog_and_heals() -> None:
    workers = {"a": stub("attach; step 5")}
    with FaultyCrew(workers) as crew:
        crew.ready()
        pids = crew.pids()
        following = HealthLog(crew.health_address, "")
        wait_for(lambda: len(crew.manager.watchdogs()) >= 3, 20, "the loop feeds the watchdog")
        assert crew.manager.said("READY=1")
        at = crew.fault("block")
        seen = crew.wait_health("", "NOT_SERVING")
        assert crew.health("ready") == "NOT_SERVING"
        assert crew.health("worker/a") == "NOT_SERVING"
        late = crew.host.worst
        assert seen - at <= STALE_AFTER_SECONDS + 1.0 + 2 * late
        assert seen - at >= STALE_AFTER_SECONDS - 1.0 - 2 * late, "a young stamp serves"
        # The last message is older than the fault, but for a turn that was under way.
        assert not crew.manager.watchdogs(since=at + 0.5 + late)
        crew.mend()
        mended = crew.wait_health("", "SERVING")
        crew.wait_health("worker/a", "SERVING")
        wait_for(lambda: crew.manager.watchdogs(since=mended), 20, "the watchdog is fed again")
        told = ["SERVING", "NOT_SERVING", "SERVING"]
        wait_for(lambda: [answer for _, answer in following.answers] == told, 20, "Watch differs")
        following.close()
        assert crew.pids() == pids
        assert "UNHEALTHY" not in crew.states("a"), "nobody is blamed for our own pause"
        paused = [event for event in crew.events() if event.kind == "supervisor_paused"]
        assert float(data(paused[-1])["seconds"]) >= STALE_AFTER_SECONDS - 1.0


def test_o_hlth_3_a_loop_that_is_blocked_for_ever_ends_the_daemon_and_no_worker(
    crew: FaultyCrew,
) -> None:
    """Nobody else is there to end it: no service manager acts on the missing messages."""
    pids = crew.pids()
    at = crew.fault("block")
    assert crew.ended() == ExitCode.LOOP_STUCK
    assert time.monotonic() - at >= LIMIT - 1.0
    (line,) = [line for line in crew.log_tail(500).splitlines() if "stood still for" in line]
    assert '"level": "critical"' in line
    assert "in stand_still" in line, "the stack says where it stands"
    adopted(crew, pids)


def test_o_hlth_3_a_loop_that_raises_ends_the_daemon_and_no_worker(crew: FaultyCrew) -> None:
    pids = crew.pids()
    crew.fault("raise")
    assert crew.ended() == ExitCode.INTERNAL
    log = crew.log_tail(500)
    assert "the verdict loop ended" in log
    assert "a fault that a test let loose" in log
    adopted(crew, pids)


def test_o_hlth_3_odd_data_of_one_worker_ends_nothing_for_the_others(crew: FaultyCrew) -> None:
    """The other one is watched as ever: a death of it is seen and mended."""
    crew.fault("worker a")
    wait_for(lambda: "odd data of one worker" in crew.log_tail(500), 20, "the fault is told")
    seen = crew.status()
    assert "odd data of one worker" in seen["a"].sentence
    assert [rank.name for rank in seen["b"].ranks] == ["0"]
    crew.stub("b").tell("exit 3")
    died = crew.wait_transition("b", "DEAD")
    crew.wait_transition("b", "HEALTHY", after=died.id)
    assert crew.health("") == "SERVING"
    assert crew.health("worker/b") == "SERVING"
    faults = [event for event in crew.events("a") if "a fault of ours" in event.sentence]
    assert "ValueError: odd data of one worker" in faults[0].sentence
    crew.mend()
    crew.stub("a").tell("exit 3")
    died = crew.wait_transition("a", "DEAD")
    crew.wait_transition("a", "HEALTHY", after=died.id)


def test_o_hlth_3_a_daemon_that_was_stopped_itself_does_not_end_for_it(crew: FaultyCrew) -> None:
    """SIGSTOP for longer than loop_limit; a paused machine looks the same."""
    pids = crew.pids()
    assert crew.process is not None
    crew.process.send_signal(signal.SIGSTOP)
    begun = time.monotonic()
    try:
        assert not answers_in_time(crew.health_address, 1.0), "the client's deadline tells"
        wait_for(lambda: time.monotonic() - begun > LIMIT + 1.5, 60, "a long pause")
    finally:
        crew.process.send_signal(signal.SIGCONT)
    crew.wait_health("", "SERVING")
    turned = len(crew.manager.watchdogs())
    wait_for(lambda: len(crew.manager.watchdogs()) > turned + 3, 30, "the loop turns on")
    assert crew.process.poll() is None
    assert crew.pids() == pids
    assert "DEAD" not in crew.states("a") + crew.states("b")


def test_o_hlth_3_where_the_interpreter_lock_is_held_the_clients_deadline_is_the_answer(
    crew: FaultyCrew,
) -> None:
    """No thread of the daemon can say anything, and none says SERVING. Afterwards all is well,
    also where it took longer than loop_limit: the guard stood as well."""
    pids = crew.pids()
    crew.fault(f"hold {LIMIT + 3:g}")
    wait_for(lambda: not answers_in_time(crew.health_address, 1.0), 20, "no answer in time")
    crew.wait_health("", "SERVING", limit=60)
    assert crew.pids() == pids
    assert "DEAD" not in crew.states("a") + crew.states("b")


def test_o_hlth_3_a_daemon_without_faults_never_ends_by_its_guard() -> None:
    """The shortest limit, a crew that restarts, and a stop that takes longer than the limit."""
    slow = stub("attach; ignore-term; idle", stop={"grace": f"{LIMIT + 2:g}s"})
    with Crew({"slow": slow}, supervisor=SETTINGS) as crew:
        crew.ready()
