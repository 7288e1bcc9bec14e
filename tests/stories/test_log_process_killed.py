"""The process that takes a worker's output is killed: the worker and its output go on."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from support.crew import Crew, shell
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(150)

TOLD = "the log process of its output"


def printing(line: str) -> Crew:
    """A worker whose output is captured. `line`: $OUT is a directory that it may look at."""
    crew = Crew({})
    output = {"mode": "capture", "path": str(crew.directory / "out")}
    worker = shell(f"OUT={crew.directory}; {line}", output=output)
    crew.write_sections({"w": worker})
    return crew


def logs(crew: Crew) -> list[psutil.Process]:
    where = str(crew.directory / "out")
    found = [p for p in psutil.process_iter() if where in _command(p)]
    return [p for p in found if any(word.endswith("log_program.py") for word in _command(p))]


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def size(crew: Crew) -> int:
    path = Path(crew.directory / "out" / "current.log")
    return path.stat().st_size if path.exists() else 0


def kill_log(crew: Crew) -> int:
    (log,) = logs(crew)
    log.kill()
    wait_for(lambda: not log.is_running() or log.status() == psutil.STATUS_ZOMBIE)
    return log.pid


def goes_on(crew: Crew, pid: int) -> None:
    before = size(crew)
    wait_for(lambda: size(crew) > before + 1000)
    seen = crew.status()["w"]
    assert (seen.state, seen.pid, seen.deaths) == ("HEALTHY", pid, 0)


def test_o_logs_1_a_killed_log_process_ends_no_worker() -> None:
    with printing("while :; do echo all the time; sleep 0.005; done") as crew:
        pid = crew.wait_state("w", "HEALTHY").pid
        wait_for(lambda: size(crew) > 0)
        gone = kill_log(crew)
        crew.wait_event(lambda e: f"{TOLD} {gone} was ended by somebody" in e.sentence)
        goes_on(crew, pid)
        # A daemon that did not start it watches over it as well.
        crew.kill()
        crew.start()
        gone = kill_log(crew)
        crew.wait_event(lambda e: f"{TOLD} {gone} was ended by somebody" in e.sentence)
        goes_on(crew, pid)
        assert len(logs(crew)) == 1
        crew.cli("stop", "w", "--config", str(crew.config))
        wait_for(lambda: not logs(crew))


def test_o_logs_1_one_that_was_killed_while_no_daemon_ran_is_started_again() -> None:
    quiet = "while [ ! -e $OUT/loud ]; do sleep 0.05; done; while echo loud; do sleep 0.005; done"
    with printing(quiet) as crew:
        pid = crew.wait_state("w", "HEALTHY").pid
        wait_for(lambda: len(logs(crew)) == 1)
        crew.kill()
        kill_log(crew)
        crew.start()
        crew.wait_event(lambda e: f"{TOLD} is gone" in e.sentence)
        (crew.directory / "loud").touch()
        goes_on(crew, pid)


def test_o_logs_1_a_worker_that_breaks_at_a_print_says_what_may_be_why() -> None:
    breaking = "while [ ! -e $OUT/loud ]; do sleep 0.05; done; kill -PIPE $$"
    with printing(breaking) as crew:
        crew.wait_state("w", "HEALTHY")
        (crew.directory / "loud").touch()
        crew.wait_event(lambda e: "signal SIGPIPE (it wrote where nobody reads" in e.sentence)


def test_o_logs_1_a_log_process_that_is_stopped_goes_on_before_the_worker_waits() -> None:
    with printing("while :; do echo all the time; sleep 0.005; done") as crew:
        pid = crew.wait_state("w", "HEALTHY").pid
        wait_for(lambda: size(crew) > 0)
        (log,) = logs(crew)
        log.suspend()
        crew.wait_event(lambda e: f"{TOLD}, {log.pid}, had been stopped" in e.sentence)
        goes_on(crew, pid)
        assert logs(crew) == [log]
