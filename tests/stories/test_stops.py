"""How it ends: all at once, each with its own grace, and nobody is judged meanwhile."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from stepwarden.errors import ExitCode
from support.crew import Crew, data, first, living, shell, stub
from support.daemon import free_port
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(120)

DRAIN, BUDGET, GRACE, MARGIN = 4.0, 2.0, 5.0, 2.0
FLAT = {"step": {"base": BUDGET, "per_seq": 0, "max": "30s"}}
QUICK = {"restart": {"delay": "100ms", "jitter": 0}, "stop": {"grace": "3s"}}


def test_o_proc_6_a_drain_is_parallel_bounded_and_no_hang() -> None:
    """Seven drain in a step of 4 s with a budget of 2 s, one ignores TERM; a second TERM a second
    later shortens nothing."""
    drains = [f"w{n}" for n in range(7)]
    scripts = dict.fromkeys(drains, f"drain {DRAIN}; attach; step 5")
    scripts["deaf"] = "ignore-term; attach; step 5"
    workers = {name: stub(script, backend="flat") for name, script in scripts.items()}
    defaults = {
        "stop": {"grace": GRACE},
        "retry": {"window": "3s"},
        "startup": {"first_step": "9s"},
    }
    with Crew(workers, backends={"flat": FLAT}, defaults=defaults) as crew:
        crew.ready()
        last = crew.events()[-1].id
        mains = [seen.pid for seen in crew.status().values()]
        process = crew.process
        assert process is not None
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        wait_for(lambda: time.monotonic() >= began + 1.0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        took = time.monotonic() - began
        assert took < GRACE + MARGIN + 4 * crew.host.worst
        assert not living(mains)
        for name in workers:
            (term,) = crew.stub(name).signals()
            assert term.name == "SIGTERM"
            assert term.at - began < 1.0 + 4 * crew.host.worst, "all at once"
        crew.start()
        crew.ready()
        new = [e for e in crew.events() if e.id > last]
        served = first(new, lambda e: e.kind == "daemon" and "serves" in e.sentence)
        resumed = first(new, lambda e: e.to_state == "STARTING")
        ended = [e for e in new if e.id < min(served.id, resumed.id)]
        for name in workers:
            mine = [e for e in ended if e.worker == name]
            assert [e.to_state for e in mine if e.to_state][:2] == ["STOPPING", "STOPPED"]
            assert "stopped by the ending supervisor" in mine[-1].sentence
            killed = [e for e in mine if "SIGKILL sent" in e.sentence]
            assert bool(killed) == (name == "deaf")
        assert {e.kind for e in ended} <= {"transition", "burial", "daemon", "operator"} | {
            "attached",
            "bye",
            "started",
        }
        assert not [e for e in ended if e.to_state in ("UNHEALTHY", "DEAD", "RESTARTING")]


def refused(crew: Crew, config: Path) -> str:
    """What a daemon says that must not start, and does not wait for the other to go."""
    done = crew.cli("run", str(config), limit=60.0)
    assert done.returncode == ExitCode.ALREADY_RUNNING, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("shared", ["agent socket", "admin socket", "TCP port"])
def test_o_state_3_another_configuration_on_the_same_address_starts_nothing(shared: str) -> None:
    """Its state directory is another, so the lock lets it pass; the address does not."""
    port = free_port()
    with Crew({"w": stub()}, supervisor=f'  agents: {{listen: ["127.0.0.1:{port}"]}}\n') as crew:
        crew.ready()
        run = crew.directory / "run"
        before = {path.name: path.stat().st_ino for path in run.glob("*.sock")}
        pid = crew.status()["w"].pid
        mark = crew.directory / "started"
        other = crew.directory / "other.yaml"
        lines = {
            "agent socket": f"agent_socket: {run}/agent.sock",
            "admin socket": f"admin_socket: {run}/admin.sock",
            "TCP port": f'agents: {{listen: ["127.0.0.1:{port}"]}}',
        }
        other.write_text(
            f"supervisor:\n  runtime_dir: {crew.directory}/run2\n"
            f"  state_dir: {crew.directory}/state2\n"
            f'  health: {{listen: ["127.0.0.1:{free_port()}"]}}\n  {lines[shared]}\n'
            f"workers: {{w: {{shell: 'touch {mark}; sleep 1000', agent: none}}}}\n"
        )
        said = refused(crew, other)
        assert (str(port) if shared == "TCP port" else str(run)) in said
        assert not mark.exists()
        assert {path.name: path.stat().st_ino for path in run.glob("*.sock")} == before
        assert (crew.status()["w"].state, crew.status()["w"].pid) == ("HEALTHY", pid)


def test_o_state_3_a_foreign_holder_of_the_port_costs_no_living_worker_anything() -> None:
    with Crew({"w": stub()}, defaults=QUICK) as crew:
        crew.ready()
        pid = crew.status()["w"].pid
        crew.kill()
        host, _, port = crew.health_address.rpartition(":")
        with socket.create_server((host, int(port))):
            assert crew.health_address in refused(crew, crew.config)
        assert living([pid])
        crew.start()
        crew.ready()
        assert crew.status()["w"].pid == pid
        assert crew.stub("w").signals() == []


def test_two_supervisors_in_one_runtime_directory_leave_each_other_alone() -> None:
    """Their sockets and states are their own; neither takes the lives of the other for its own."""
    with Crew({"w": stub()}, defaults=QUICK) as crew:
        crew.ready()
        pid = crew.status()["w"].pid
        run, other = crew.directory / "run", crew.directory / "other.yaml"
        other.write_text(
            f"supervisor:\n  runtime_dir: {run}\n  state_dir: {crew.directory}/state2\n"
            f"  agent_socket: {run}/agent2.sock\n  admin_socket: {run}/admin2.sock\n"
            f'  health: {{listen: ["127.0.0.1:{free_port()}"]}}\n'
            "workers: {v: {shell: 'sleep 1000', agent: none}}\n"
        )
        command = [*crew.command()[:-1], str(other)]
        with subprocess.Popen(command, env=crew.environment(), stderr=subprocess.DEVNULL) as second:
            asked = ("status", "--json", "--config", str(other))
            wait_for(lambda: '"HEALTHY"' in crew.cli(*asked).stdout)
            second.terminate()
            assert second.wait(30) == 0
        assert crew.status()["w"].pid == pid
        assert crew.stub("w").signals() == []
        crew.kill()
        crew.start()
        crew.ready()
        assert crew.status()["w"].pid == pid


def test_on_exit_leave_sees_starts_and_burials_to_their_end() -> None:
    """What is not up yet, or is being ended, is nothing that the next daemon could adopt."""
    workers = {
        "up": shell("sleep 1000"),
        "held": shell("sleep 1000", needs=["never"]),
        "never": shell("sleep 1000", ready={"command": ["false"]}),
        "dies": shell("trap '' TERM; sleep 1000 & wait"),
    }
    with Crew(workers, supervisor="  on_exit: leave\n", defaults=QUICK) as crew:
        crew.ready("up", "dies")
        main = psutil.Process(crew.status()["dies"].pid)
        wait_for(main.children)
        (child,) = main.children()
        main.kill()
        crew.wait_event(lambda e: "SIGTERM sent to" in e.sentence, worker="dies")
        before = {name: seen.pid for name, seen in crew.status().items()}
        last = crew.events()[-1].id
        crew.tree()
        process = crew.process
        assert process is not None
        process.terminate()
        assert process.wait(30) == 0
        assert not living([child.pid])
        assert sorted(living([before["up"], before["never"]])) == sorted(
            [before["up"], before["never"]]
        )
        crew.process = None
        crew._close_channel()
        crew.start()
        again = crew.wait_event(lambda e: e.kind == "started" and e.id > last, worker="dies")
        assert again.incarnation == "2"
        assert crew.status()["dies"].deaths == 1
        seen = crew.status()
        assert (seen["up"].pid, seen["never"].pid) == (before["up"], before["never"])
        assert (seen["held"].state, seen["held"].pid) == ("STARTING", 0)
        assert data(again)["pid"] not in (main.pid, child.pid)
        process = crew.process
        assert process is not None
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        crew.process = None
        crew._close_channel()
        crew.assert_nothing_left()
