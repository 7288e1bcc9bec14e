"""How workers end, how often they are started again, and when the operator is called."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import psutil
import pytest
from stepwarden_proto.v1 import supervisor_pb2
from support.crew import Crew, data, shell, span, stub

pytestmark = pytest.mark.timeout(120)

ENDS = {
    "zero": ("exit 0", "exit code 0"),
    "one": ("exit 1", "exit code 1"),
    "oom": ("exit 137", "exit code 137"),
    "term": ("exit 143", "exit code 143"),
    "segv": ("raise SEGV", "signal SIGSEGV"),
    "abrt": ("raise ABRT", "signal SIGABRT"),
}


LIMITED = {"limit": 4, "within": "60s", "delay": "1s", "factor": 2, "max_delay": "4s", "jitter": 0}
NOW_AND_THEN = {**LIMITED, "within": "1s", "stable": "1s", "delay": "300ms"}


@pytest.fixture(scope="module")
def endings() -> Iterator[Crew]:
    """Six workers with the shipped restart policy; only its first delay of 10 s is shortened. One
    more that dies now and then."""
    workers = {name: stub() for name in ENDS}
    workers["now-and-then"] = shell("sleep 1.1; exit 1", restart=NOW_AND_THEN)
    with Crew(workers, defaults={"restart": {"delay": "500ms"}}) as crew:
        crew.ready(*ENDS)
        yield crew


@pytest.mark.parametrize("worker", ENDS)
def test_o_rstr_1_every_end_is_a_failure_and_starts_it_again(endings: Crew, worker: str) -> None:
    how, shown = ENDS[worker]
    told = time.monotonic()
    endings.stub(worker).tell(how)
    dead = endings.wait_transition(worker, "DEAD")
    assert dead.cause == "exit"
    word = "was ended by" if shown.startswith("signal") else "ended by itself with"
    assert f"its main process {word} {shown}" in dead.sentence
    assert data(dead)["exit"] == shown
    assert dead.monotonic - told <= 1.0 + endings.host.worst
    endings.wait_event(lambda e: e.to_state == "HEALTHY" and e.incarnation == "2", worker=worker)
    status = endings.status()[worker]
    assert (status.last_exit, status.restarts_used, status.deaths) == (shown, 1, 1)
    assert (status.restarts_limit, status.incarnation) == (5, "2")
    assert dead.sentence == f"{status.last_death}; ending what is left of its tree"
    shown_text = endings.cli("status", worker, "--config", str(endings.config)).stdout
    assert f"\nlast death:      its main process {word}" in shown_text


def gaps(crew: Crew, worker: str, after: int = 0) -> list[float]:
    """Seconds from each RESTARTING to the STARTING that followed."""
    turns = [e for e in crew.turns(worker) if e.id > after]
    return [span(a, b) for a, b in itertools.pairwise(turns) if a.to_state == "RESTARTING"]


def test_o_rstr_3_three_restarts_with_rising_gaps_then_failed_and_by_hand_again() -> None:
    """(a) and (c): max 3 restarts are a limit of 4 deaths; delays 1, 2, 4 s."""
    workers = {"dies": shell("sleep 0.1; exit 1", restart=LIMITED)}
    with Crew(workers) as crew:
        starting = cpu_seconds(crew.pid)
        failed = crew.wait_transition("dies", "FAILED")
        used = cpu_seconds(crew.pid) - starting
        # Less than 5 % of a core over 7 s of delays; said by what the daemon's own start takes on
        # this machine, about 0.5 s, for a slow or busy one makes both dearer.
        assert used < 0.6 * starting
        events = crew.events("dies")
        assert [e.to_state for e in events if e.to_state] == [
            *("STARTING", "HEALTHY", "DEAD", "RESTARTING") * 3,
            *("STARTING", "HEALTHY", "DEAD", "FAILED"),
        ]
        assert_gaps(crew, gaps(crew, "dies"), [1.0, 2.0, 4.0])
        assert len([e for e in events if e.kind == "started"]) == 4
        lines = [line for line in crew.log_tail(1000).splitlines() if '"kind": "started"' in line]
        assert len(lines) == 4, "one line per attempt"
        assert "gave up after 4 deaths (restart.limit 4)" in failed.sentence
        crew.wait_status("dies", lambda w: w.state == "FAILED", "FAILED")
        assert crew.health("worker/dies") == crew.health("ready") == "NOT_SERVING"
        assert crew.health("") == "SERVING"

        # (c) `restart` by hand starts at once, with the counters at zero, and 3 more times.
        crew.admin().RestartWorker(supervisor_pb2.WorkerCommandRequest(name="dies"), timeout=10)
        again = crew.wait_transition("dies", "STARTING", after=failed.id)
        told = [e for e in crew.events("dies") if e.kind == "operator"]
        assert span(told[0], again) < 0.5
        crew.wait_transition("dies", "FAILED", after=again.id)
        assert_gaps(crew, gaps(crew, "dies", failed.id), [1.0, 2.0, 4.0])


def test_o_rstr_3_deaths_farther_apart_than_the_window_never_end_in_failed(
    endings: Crew,
) -> None:
    """(b), with a window of 1 s and a death each 1.1 s: the delay is the first one each time."""
    crew, name = endings, "now-and-then"
    crew.wait_event(lambda e: e.to_state == "DEAD" and e.incarnation == "7", worker=name)
    assert "FAILED" not in crew.states(name)
    assert_gaps(crew, gaps(crew, name)[:6], [0.3] * 6)
    assert crew.status()[name].restarts_used == 1


def assert_gaps(crew: Crew, found: list[float], wanted: list[float]) -> None:
    assert len(found) == len(wanted)
    for gap, plan in zip(found, wanted, strict=True):
        assert plan <= gap <= plan + crew.leniency()


def cpu_seconds(pid: int) -> float:
    """CPU of this process alone, without its children."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)
