"""The release gate before a start, with the real daemon."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from support.crew import PYTHON, Crew, shell

BACKENDS = {"gpu": {"step": {"base": "1s", "per_seq": "0ms"}}}
SOON = {"delay": "100ms", "jitter": 0, "limit": 20}


def holder() -> tuple[socket.socket, int]:
    """A port that this process holds."""
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    held.listen()
    return held, int(held.getsockname()[1])


def waiter(**sections: Any) -> dict[str, Any]:
    return shell("exec sleep 600", restart=SOON, **sections)


def test_a_port_that_a_foreign_process_holds_is_waited_for_and_then_failed() -> None:
    held, port = holder()
    workers = {"w": waiter(release={"ports": [port], "limit": "2s"})}
    with held, Crew(workers, backends=BACKENDS) as crew:
        waits = crew.wait_status("w", lambda s: str(port) in s.sentence, "held")
        assert waits.state == "STARTING"
        assert f"port {port} is in use" in waits.held
        assert waits.pid == 0
        failed = crew.wait_state("w", "FAILED")
        assert failed.cause == "gate"
        assert f"port {port} is in use" in failed.sentence
        assert f"pid {os.getpid()}" in failed.sentence
        assert "waited 2 s" in failed.sentence
        assert failed.pid == 0
        assert failed.deaths == 0
        held.close()
        said = crew.cli("start", "w", "--config", str(crew.config))
        assert said.returncode == 0, said
        crew.ready()


def test_a_port_that_becomes_free_lets_the_start_go_on() -> None:
    held, port = holder()
    workers = {"w": waiter(release={"ports": [port], "limit": "60s"})}
    with Crew(workers, backends=BACKENDS) as crew:
        crew.wait_status("w", lambda s: f"port {port} is in use" in s.held, "held")
        held.close()
        crew.ready()
        assert crew.status()["w"].held == ""
        assert crew.states("w") == ["STARTING", "HEALTHY"]


def test_a_gate_that_is_open_tells_of_no_wait() -> None:
    held, port = holder()
    held.close()
    with Crew({"w": waiter(release={"ports": [port]})}, backends=BACKENDS) as crew:
        crew.ready()
        assert not [e for e in crew.events("w") if e.kind == "held"]


def test_a_release_command_says_what_is_in_the_way(tmp_path: Path) -> None:
    free = tmp_path / "free"
    asks = ["/bin/sh", "-c", f"test -e {free} || {{ echo 900 MiB in use; exit 1; }}"]
    workers = {"w": waiter(release={"command": asks, "limit": "60s"})}
    with Crew(workers, backends=BACKENDS) as crew:
        crew.wait_status("w", lambda s: "900 MiB in use" in s.held, "held")
        free.touch()
        crew.ready()


def test_pre_start_comes_before_the_gate_and_may_free_what_it_asks_for(tmp_path: Path) -> None:
    """A container that a crash left behind holds the port until `docker rm -f` ends it."""
    lock = tmp_path / "lock"
    grab = f"import fcntl, time; f = open({str(lock)!r}, 'w'); fcntl.flock(f, 2); time.sleep(600)"
    script = f"trap 'exit 0' TERM; {PYTHON} -c \"{grab}\" & echo $! > {tmp_path}/pid; wait"
    workers = {
        "left": shell(script),
        "w": waiter(
            needs=["left"],
            pre_start={"command": ["/bin/sh", "-c", f"kill $(cat {tmp_path}/pid)"]},
            release={"files": [str(lock)], "limit": "20s"},
        ),
    }
    with Crew(workers, backends=BACKENDS) as crew:
        crew.wait_state("w", "HEALTHY")
