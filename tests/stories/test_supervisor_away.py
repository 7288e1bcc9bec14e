"""The supervisor is paused, or gone and back; a worker comes back: old silence is nobody's fault.

These stories take a minute each, so they run side by side: agents lose their supervisor and a
worker dies when the module begins; the tests at its end look what became of them.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from stepwarden.edge.listen import TcpTarget, UnixTarget
from stepwarden_proto.v1 import agent_pb2
from support.crew import Crew, data, secrets_of, send_beat, settings, span, stub
from support.daemon import free_port
from support.lone_agents import Beats, LoneAgent, agent_environment
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(240)

BUDGET, WINDOW = 2.0, 3.0
DOWN = 60.0
DEFAULTS = {
    "heartbeat": {"timeout": "5s"},
    "startup": {"budget": "60s", "first_step": "100ms"},
    "retry": {"window": WINDOW},
    "restart": {"delay": "100ms", "jitter": 0},
    "stop": {"grace": "2s"},
}
SILENCE = 61.0
NEWBORN = {
    "heartbeat": {"interval": "200ms", "timeout": "3s"},
    "startup": {"budget": "10s", "first_step": "100ms"},
    "retry": {"window": WINDOW},
    "restart": {"delay": SILENCE, "jitter": 0},
    "stop": {"grace": "2s"},
}
FLAT = {"step": {"base": BUDGET, "per_seq": 0, "max": "30s", "hard_cap": BUDGET + WINDOW}}
FOUR = ("w1", "w2", "w3", "w4")


@dataclass
class Deserted:
    """Two agents whose supervisor has been gone since `gone_at`."""

    beats: Beats
    agents: dict[str, LoneAgent]
    sockets: Path
    gone_at: float = 0.0


@pytest.fixture(scope="module", autouse=True)
def deserted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deserted]:
    directory = tmp_path_factory.mktemp("lone")
    sockets = directory / "run"
    sockets.mkdir()
    uds, tcp = UnixTarget(sockets / "agent.sock"), TcpTarget("127.0.0.1", free_port())
    beats = Beats([uds, tcp])
    beats.up()
    targets = {"uds": str(uds), "tcp": f"127.0.0.1:{tcp.port}"}
    environment = agent_environment()
    agents = {name: LoneAgent(directory, name, to, environment) for name, to in targets.items()}
    told = Deserted(beats, agents, sockets)
    try:
        for name in agents:
            wait_for(lambda name=name: len(beats.of(name, 0.0)) >= 3)  # type: ignore[misc]
        beats.down()
        told.gone_at = time.monotonic()
        yield told
    finally:
        for agent in agents.values():
            agent.end()
        beats.close()


@dataclass
class Reborn:
    """A daemon whose worker died and is to start again a minute later."""

    crew: Crew
    old: dict[str, str]


@pytest.fixture(scope="module", autouse=True)
def reborn() -> Iterator[Reborn]:
    script = "attach; step 100 | sleep 4; attach; idle"
    workers = {"w": stub(script, backend="flat")}
    with Crew(workers, backends={"flat": FLAT}, defaults=NEWBORN) as crew:
        crew.ready()
        crew.wait_status("w", lambda w: w.ranks[0].steps_ended >= 120, "past step 120")
        old = secrets_of(crew.status()["w"].pid)
        crew.stub("w").tell("raise KILL")
        yield Reborn(crew, old)


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    workers = {name: stub("attach; step 3.3", backend="flat") for name in FOUR}
    workers["freezes"] = stub("attach; step 3.3 | attach; idle", backend="flat")
    with Crew(workers, backends={"flat": FLAT}, defaults=DEFAULTS) as crew:
        crew.ready()
        yield crew


def pause(process: psutil.Process, seconds: float) -> float:
    """Stop a process for so long; returns when it went on."""
    process.send_signal(signal.SIGSTOP)
    wait_for(lambda: process.status() == psutil.STATUS_STOPPED)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.02)
    resumed = time.monotonic()
    process.send_signal(signal.SIGCONT)
    return resumed


def test_o_time_2_a_pause_of_15_seconds_kills_nobody_but_who_really_froze(crew: Crew) -> None:
    daemon = psutil.Process(crew.pid)
    daemon.send_signal(signal.SIGSTOP)
    crew.stub("freezes").send("freeze")
    resumed = pause(daemon, 15.0)
    noticed = crew.wait_event(lambda e: e.kind == "supervisor_paused" and data(e)["seconds"] > 10)
    assert 15.0 - 1.5 <= data(noticed)["seconds"] <= 15.0 + 1.5 + crew.host.worst
    dead = crew.wait_transition("freezes", "DEAD")
    late = crew.wait_transition("freezes", "UNHEALTHY")
    assert noticed.id < late.id, "nobody is judged before the pause is known"
    found_within = dead.monotonic - resumed
    assert found_within <= BUDGET + WINDOW + 0.5 + 0.7 + 2 * crew.host.worst
    assert late.monotonic - resumed >= BUDGET - 1.0, "it gets its budget back"
    for name in FOUR:
        assert "DEAD" not in crew.states(name)
        assert crew.states(name)[:2] == ["STARTING", "HEALTHY"]
        assert crew.status()[name].state == "HEALTHY"


def test_o_time_2_ten_pauses_of_1_5_seconds_kill_nobody(crew: Crew) -> None:
    daemon = psutil.Process(crew.pid)
    last = crew.events()[-1].id
    for _ in range(10):
        resumed = pause(daemon, 1.5)
        wait_for(lambda: time.monotonic() >= resumed + 1.5)  # noqa: B023 - used at once
    seen = crew.status()
    assert {seen[name].state for name in FOUR} == {"HEALTHY"}
    new = [e for e in crew.events() if e.id > last]
    assert len([e for e in new if e.kind == "supervisor_paused"]) >= 5
    assert not [e for e in new if e.worker in FOUR and e.to_state == "DEAD"]
    assert sum(seen[name].deaths for name in FOUR) == 0


def test_o_start_3_a_newborn_is_not_judged_by_its_predecessor(reborn: Reborn) -> None:
    """The first beat comes 4 s after the spawn with step 0; late beats of the old life change
    nothing, whichever token they carry."""
    crew, old = reborn.crew, reborn.old
    born = crew.wait_event(lambda e: e.kind == "started" and e.incarnation == "2", limit=90)
    dead = crew.wait_transition("w", "DEAD")
    assert span(dead, born) >= SILENCE, "its last beat is a minute old"
    new = secrets_of(data(born)["pid"])
    assert old["STEPWARDEN_TOKEN"] != new["STEPWARDEN_TOKEN"]
    target = f"unix:{settings(crew).supervisor.agent_socket}"
    late = {
        "worker": "w",
        "incarnation": old["STEPWARDEN_INCARNATION"],
        "rank": "0",
        "seq": 7,
        "pid": data(born)["pid"],
        "phase": agent_pb2.PHASE_DECODE,
        "steps_begun": 100,
        "steps_ended": 100,
    }
    wait_for(lambda: time.monotonic() >= born.monotonic + 1.0)
    for token in (old, new, {"STEPWARDEN_TOKEN": "guessed"}):
        assert send_beat(target, token["STEPWARDEN_TOKEN"], **late) == "PERMISSION_DENIED"
    crew.wait_event(lambda e: e.kind == "refused" and e.worker == "w")
    assert crew.status()["w"].state == "STARTING"
    assert not crew.status()["w"].ranks
    ready = crew.wait_event(lambda e: e.to_state == "HEALTHY" and e.incarnation == "2")
    assert span(born, ready) >= 4.0
    turns = [e.to_state for e in crew.turns("w") if e.incarnation == "2"]
    assert turns == ["STARTING", "HEALTHY"]
    rank = crew.status()["w"].ranks[0]
    assert (rank.steps_ended, rank.step) == (0, 0)
    crew.stub("w").send("step 100")
    crew.wait_status("w", lambda w: w.ranks[0].steps_ended >= 20, "20 steps on")
    assert crew.status()["w"].state == "HEALTHY"


def test_o_grpc_1_agents_find_the_next_supervisor_within_3_seconds(deserted: Deserted) -> None:
    """60 s without one; then the socket is a new inode in a directory made anew."""
    beats, agents = deserted.beats, deserted.agents
    shutil.rmtree(deserted.sockets)
    wait_for(lambda: time.monotonic() >= deserted.gone_at + DOWN, DOWN + 1)
    begun = {name: agent.control.status()["begun"] for name, agent in agents.items()}
    deserted.sockets.mkdir()
    beats.up()
    for name in agents:
        wait_for(lambda name=name: beats.of(name, beats.listening_since - 0.5))  # type: ignore[misc]
        at, facts = beats.of(name, beats.listening_since - 0.5)[0]
        assert at - beats.listening_since < 3.0
        assert facts.steps_begun >= int(str(begun[name])), "the newest state is told"
        assert facts.steps_begun >= 100, "it stepped on all the time"
    for agent in agents.values():
        assert agent.process.poll() is None
        assert "Traceback" not in agent.errors.read_text()


def test_o_grpc_1_a_short_absence_is_bridged_likewise(deserted: Deserted) -> None:
    """The same socket directory this time; once more a new inode."""
    beats = deserted.beats
    beats.down()
    time_gone = time.monotonic()
    wait_for(lambda: time.monotonic() >= time_gone + 3.0)
    beats.up()
    for name in deserted.agents:
        wait_for(lambda name=name: beats.of(name, beats.listening_since - 0.5))  # type: ignore[misc]
        assert beats.of(name, beats.listening_since - 0.5)[0][0] - beats.listening_since < 3.0
