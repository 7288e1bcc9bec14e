"""O-HLTH-2: what watchers of our health see when the daemon is told to end."""

from __future__ import annotations

import time

import pytest
from support.crew import Crew, HealthLog, stub
from support.silent_watchers import SilentWatchers
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(120)

DRAIN = 1.0
NAMES = ("", "ready", "worker/a", "worker/b", "worker/nobody")


def test_o_hlth_2_watchers_hear_of_the_end_first_and_hold_up_nobody() -> None:
    """Five open streams; each worker takes a second to end, of a grace of ten."""
    workers = {
        name: stub(f"attach; drain {DRAIN:g}; step 5", stop={"grace": "10s"}) for name in "ab"
    }
    with Crew(workers) as crew:
        crew.ready()
        logs = [HealthLog(crew.health_address, name) for name in NAMES]
        first = ["SERVING"] * 4 + ["SERVICE_UNKNOWN"]
        wait_for(lambda: [log.answers[0][1] for log in logs if log.answers] == first)
        crew.tree()
        assert crew.process is not None
        told_at = time.monotonic()
        crew.terminate()
        code = crew.process.wait(60)
        took = time.monotonic() - told_at
        crew.process = None
        late = crew.host.worst
        assert code == 0
        assert took < 3.0 + 2 * late, "the grace is no waiting time, nor are open streams"
        wait_for(lambda: all(log.ended_with for log in logs), what="the streams have ended")
        terms = [s.at for name in "ab" for s in crew.stub(name).signals() if s.name == "SIGTERM"]
        assert len(terms) == 2
        for log in logs[:4]:
            assert [answer for _, answer in log.answers] == ["SERVING", "NOT_SERVING"]
            # Handed over before; when its own thread gets to run is up to this machine.
            assert log.answers[-1][0] <= min(terms) + 0.05 + late
        assert [answer for _, answer in logs[4].answers] == ["SERVICE_UNKNOWN"]
        assert {log.ended_with for log in logs} == {"OK"}, "ended by the server, in order"
        for log in logs:
            log.close()
        assert took >= DRAIN
        crew.assert_nothing_left()


def test_o_hlth_2_a_watcher_that_never_reads_holds_up_the_end_for_half_a_second_at_most() -> None:
    with Crew({"a": stub()}) as crew:
        crew.ready()
        port = int(crew.health_address.rpartition(":")[2])
        with SilentWatchers(port, "ready", 50):
            assert crew.health("ready") == "SERVING"
            begun = time.monotonic()
            crew.stop()
            assert time.monotonic() - begun < 5.0 + 4 * crew.host.worst
