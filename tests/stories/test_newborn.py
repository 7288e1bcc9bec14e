"""A new life owes nothing to the one before it."""

from __future__ import annotations

import time

import pytest
from stepwarden_proto.v1 import agent_pb2
from support.crew import Crew, data, secrets_of, send_beat, settings, span, stub

pytestmark = pytest.mark.timeout(120)

SILENCE = 10.0
"""Age of the last beat at the restart: more than three times its timeout of 3 s."""

DEFAULTS = {
    "heartbeat": {"interval": "200ms", "timeout": "3s"},
    "startup": {"budget": "10s", "first_step": "100ms"},
    "retry": {"window": "3s"},
    "restart": {"delay": SILENCE, "jitter": 0},
    "stop": {"grace": "2s"},
}
FLAT = {"step": {"base": "2s", "per_seq": 0, "max": "30s"}}


def test_o_start_3_a_newborn_is_not_judged_by_its_predecessor() -> None:
    """The first beat comes 4 s after the spawn with step 0; late beats of the old life change
    nothing, whichever token they carry."""
    script = "attach; step 100 | sleep 4; attach; idle"
    workers = {"w": stub(script, backend="flat")}
    with Crew(workers, backends={"flat": FLAT}, defaults=DEFAULTS) as crew:
        crew.ready()
        crew.wait_status("w", lambda w: w.ranks[0].steps_ended >= 120, "past step 120")
        old = secrets_of(crew.status()["w"].pid)
        crew.stub("w").tell("raise KILL")
        born = crew.wait_event(lambda e: e.kind == "started" and e.incarnation == "2")
        dead = crew.wait_transition("w", "DEAD")
        assert span(dead, born) >= SILENCE
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
        while time.monotonic() < born.monotonic + 1.0:
            time.sleep(0.02)
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
