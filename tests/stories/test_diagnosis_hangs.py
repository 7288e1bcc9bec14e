"""Real processes that truly hang, each in its own way: the verdict says in which."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from stepwarden_proto.v1 import supervisor_pb2
from support.cgroups import short_of_cpu
from support.crew import Crew, Event, Section, data

pytestmark = pytest.mark.timeout(240)

ILL = str(Path(__file__).parents[1] / "support" / "ill_worker.py")
PATIENT = {"step": {"base": 3, "per_seq": 0, "max": "60s", "hard_cap": 12}}
DEFAULTS = {
    "heartbeat": {"interval": "500ms", "timeout": "4s"},
    "startup": {"budget": "60s", "first_step": "100ms"},
    "retry": {"window": "5s"},
    "restart": {"delay": "1h", "max_delay": "1h", "jitter": 0},
    "stop": {"grace": "1s"},
}
HANGS = {
    "spin": "spinning",
    "lock": "waiting",
    "recv": "waiting",
    "gil": "lock_held",
    "vfork": "uninterruptible",
    "read": "slow",
    "behind": "rank_behind",
    "scheduler": "scheduler_stuck",
}


def ill(condition: str) -> Section:
    command = [sys.executable, ILL, condition]
    return {"command": command, "env": {}, "backend": "patient", "max_num_seqs": 8}


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    workers = {name: ill(name) for name in HANGS}
    workers["burn"] = ill("burn")
    workers["nap"] = ill("nap")
    with Crew(workers, backends={"patient": PATIENT}, defaults=DEFAULTS) as found:
        found.ready()
        yield found


def go(crew: Crew, name: str) -> None:
    (crew.directory / name / "go").touch()


def settled(crew: Crew, name: str) -> Event:
    """Its first verdict after a whole window: dead, or one more."""
    return crew.wait_event(
        lambda event: event.to_state == "DEAD" or event.kind == "retry", worker=name
    )


@pytest.mark.parametrize(("name", "diagnosis"), list(HANGS.items()))
def test_each_hang_is_told_by_its_name(crew: Crew, name: str, diagnosis: str) -> None:
    go(crew, name)
    alarm = crew.wait_transition(name, "UNHEALTHY")
    # One look may have to do for the first word: whoever waits for exec holds its lock as well.
    first = {diagnosis, "unknown", "starved"} | ({"lock_held"} if name == "vfork" else set())
    assert data(alarm)["diagnosis"] in first, alarm.sentence
    shown = crew.wait_status(name, lambda seen: seen.diagnosis == diagnosis, diagnosis, 20)
    assert shown.grounds
    verdict = settled(crew, name)
    assert data(verdict)["diagnosis"] == diagnosis, verdict.sentence
    assert f"diagnosis {diagnosis}: {data(verdict)['grounds']}" in verdict.sentence
    if diagnosis == "rank_behind":
        assert "rank 1 has begun 2" in data(verdict)["grounds"]
        assert shown.diagnosed_rank == "1"


def test_what_is_slow_or_spins_is_not_dead_before_its_hard_cap(crew: Crew) -> None:
    for name in ("spin", "read"):
        dead = crew.wait_transition(name, "DEAD")
        assert "hard cap" in dead.sentence
        assert data(dead)["diagnosis"] == HANGS[name], dead.sentence


def test_a_quota_that_holds_a_worker_back_is_told(crew: Crew) -> None:
    with short_of_cpu(10, crew.status()["burn"].pid):
        go(crew, "burn")
        alarm = crew.wait_transition("burn", "UNHEALTHY")
        assert data(alarm)["diagnosis"] == "starved", alarm.sentence
        assert "the CPU quota of its control group held rank 0 back" in alarm.sentence
        verdict = settled(crew, "burn")
        assert data(verdict)["diagnosis"] == "starved", verdict.sentence
        assert verdict.kind == "retry"  # it works as far as it can
    crew.admin().StopWorker(supervisor_pb2.WorkerCommandRequest(name="burn"), timeout=10)


def test_a_stopped_process_is_told_and_goes_on_as_a_false_alarm(crew: Crew) -> None:
    pid = crew.status()["nap"].pid
    go(crew, "nap")
    crew.wait_status("nap", lambda seen: seen.ranks[0].step == 3, "in its step")
    os.kill(pid, signal.SIGSTOP)
    try:
        alarm = crew.wait_transition("nap", "UNHEALTHY")
        assert data(alarm)["diagnosis"] == "stopped", alarm.sentence
        assert f"process {pid} of rank 0 is stopped (state T)" in alarm.sentence
    finally:
        os.kill(pid, signal.SIGCONT)
    alarm = crew.wait_event(lambda event: event.kind == "false_alarm", worker="nap")
    assert data(alarm)["diagnosis"]
    crew.wait_state("nap", "HEALTHY")


def test_status_shows_word_and_grounds_also_after_a_death(crew: Crew) -> None:
    go(crew, "lock")
    crew.wait_state("lock", "RESTARTING")
    told = crew.cli("status", "lock", "--config", str(crew.config)).stdout
    assert "diagnosis:       waiting: step 3 is in flight, and rank 0 sleeps" in told, told
    asked = crew.cli("status", "lock", "--json", "--config", str(crew.config)).stdout
    assert '"diagnosis": "waiting"' in asked
