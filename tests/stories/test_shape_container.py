"""O-PROC-3 with the real daemon: a worker that is the client of a container engine."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from support.crew import INTERVALS, PYTHON, Crew, living, span, stub
from support.stub_control import STUB_COMMAND
from support.waiting import wait_for

PROGRAM = str(Path(__file__).parents[1] / "support" / "container_engine.py")
BACKENDS = {"gpu": {"step": {"base": "1s", "per_seq": "0ms"}}}
SOON = {"delay": "200ms", "jitter": 0, "limit": 20}


def client(directory: Path, verb: str, *more: str) -> list[str]:
    return [PYTHON, "-I", "-S", PROGRAM, verb, str(directory), *more]


def contained(directory: Path, **sections: Any) -> dict[str, Any]:
    """What `docker run` is to a supervisor, with all that such a worker needs around it."""
    return {
        "command": client(directory, "run", "llm"),
        "agent": "none",
        "backend": "gpu",
        "pre_start": {"command": client(directory, "remove", "llm"), "ignore_failure": True},
        "stop": {"command": client(directory, "stop", "llm"), "timeout": "5s", "signal": "KILL"},
        "restart": SOON,
        "release": {"files": [str(directory / "llm.lock")], "limit": "20s"},
        **sections,
    }


@contextmanager
def engine(directory: Path) -> Iterator[None]:
    served = subprocess.Popen(client(directory, "serve"))
    try:
        wait_for((directory / "serving").exists, what="the engine serves")
        yield
    finally:
        containers = psutil.Process(served.pid).children(recursive=True)
        for process in containers:
            process.kill()
        served.kill()
        served.wait(10)


def lines(path: Path) -> list[int]:
    return [int(line) for line in path.read_text().splitlines()] if path.exists() else []


def running(directory: Path) -> list[int]:
    """Containers that run now."""
    return living(lines(directory / "started"))


def test_o_proc_3_a_killed_client_is_followed_by_stop_and_one_new_container(
    tmp_path: Path,
) -> None:
    with engine(tmp_path), Crew({"ctr": contained(tmp_path)}, backends=BACKENDS) as crew:
        crew.ready("ctr")
        wait_for(lambda: len(running(tmp_path)) == 1, what="a container runs")
        (old,) = running(tmp_path)
        seen = crew.status()["ctr"]
        psutil.Process(seen.pid).kill()
        dead = crew.wait_transition("ctr", "DEAD")
        again = crew.wait_transition("ctr", "HEALTHY", after=dead.id)
        wait_for(lambda: len(lines(tmp_path / "started")) == 2, what="a second container")
        told = [e.sentence for e in crew.events("ctr") if dead.id < e.id < again.id]
        assert any(text.startswith("stop command ended with exit code 0") for text in told), told
        assert old not in running(tmp_path)
        assert len(running(tmp_path)) == 1
        assert crew.status()["ctr"].restarts_used == 1
        crew.stop()
        assert running(tmp_path) == []


def test_o_proc_3_a_stop_command_that_hangs_ends_by_its_limit_and_delays_nobody(
    tmp_path: Path,
) -> None:
    hanging = {
        "command": client(tmp_path, "stop", "llm", "hang"),
        "timeout": "5s",
        "grace": "1s",
    }
    workers = {
        "ctr": contained(
            tmp_path,
            stop=hanging,
            pre_start={"command": client(tmp_path, "remove", "llm"), "ignore_failure": True},
        ),
        "w": stub("attach; step 5", retry={"window": "1s"}, startup={"first_step": 0}),
    }
    del workers["ctr"]["release"]  # pre_start is what frees the name here
    with engine(tmp_path), Crew(workers, backends=BACKENDS) as crew:
        crew.ready()
        wait_for(lambda: len(running(tmp_path)) == 1, what="a container runs")
        psutil.Process(crew.status()["ctr"].pid).kill()
        dead = crew.wait_transition("ctr", "DEAD")
        wait_for(lambda: bool(lines(tmp_path / "hanging")), what="the stop command hangs")
        crew.stub("w").send("freeze 30")
        late = crew.wait_transition("w", "UNHEALTHY")
        end = crew.wait_transition("w", "DEAD", after=late.id)
        assert 1.0 <= span(late, end) <= 1.0 + crew.leniency() + INTERVALS
        again = crew.wait_transition("ctr", "HEALTHY", after=dead.id)
        assert late.id < again.id, "the other worker was judged while the stop command hung"
        assert span(dead, again) >= 5.0
        told = [e.sentence for e in crew.events("ctr") if dead.id < e.id < again.id]
        assert any("longer than its limit of 5 s and was killed" in text for text in told), told
        assert living(lines(tmp_path / "hanging")) == [], "no pile of stop commands"
        wait_for(lambda: len(lines(tmp_path / "started")) == 2, what="a second container")
        assert len(running(tmp_path)) == 1


def test_o_proc_3_a_pre_start_that_fails_is_a_failed_start_unless_it_is_ignored(
    tmp_path: Path,
) -> None:
    bad = contained(
        tmp_path,
        pre_start={"command": client(tmp_path, "remove", "nobody")},
        restart={"delay": "200ms", "jitter": 0, "limit": 2},
    )
    with engine(tmp_path), Crew({"ctr": bad}, backends=BACKENDS) as crew:
        failed = crew.wait_state("ctr", "FAILED")
        assert "pre_start" in failed.last_death
        assert "no such container: nobody" in failed.last_death
        assert running(tmp_path) == []
        assert lines(tmp_path / "started") == []


def test_o_proc_3_a_step_deadline_ends_the_container_too(tmp_path: Path) -> None:
    run = " ".join(client(tmp_path, "run", "llm"))
    worker = contained(
        tmp_path, agent="required", retry={"window": "500ms"}, startup={"first_step": 0}
    )
    worker["shell"] = f"{run} & exec {' '.join(STUB_COMMAND)}"
    worker["env"] = {"STUB_SCRIPT": "attach; idle"}
    del worker["command"]
    with engine(tmp_path), Crew({"ctr": worker}, backends=BACKENDS) as crew:
        crew.ready()
        wait_for(lambda: len(running(tmp_path)) == 1, what="a container runs")
        (old,) = running(tmp_path)
        crew.stub("ctr").send("freeze 60")
        dead = crew.wait_transition("ctr", "DEAD")
        assert dead.cause == "step"
        crew.wait_transition("ctr", "HEALTHY", after=dead.id)
        wait_for(lambda: len(lines(tmp_path / "started")) == 2, what="a second container")
        assert len(running(tmp_path)) == 1
        assert old not in running(tmp_path)


def test_a_stop_that_a_killed_daemon_left_half_done_ends_the_container(tmp_path: Path) -> None:
    slowly = " ".join(["sleep 3;", *client(tmp_path, "stop", "llm")])
    worker = contained(tmp_path, stop={"command": ["/bin/sh", "-c", slowly], "timeout": "9s"})
    with engine(tmp_path), Crew({"ctr": worker}, backends=BACKENDS) as crew:
        crew.ready()
        wait_for(lambda: len(running(tmp_path)) == 1, what="a container runs")
        crew.cli("stop", "ctr", "--no-wait", "--config", str(crew.config))
        stopping = crew.wait_transition("ctr", "STOPPING")
        (command,) = [p for p in crew.tree() if slowly in p.cmdline()]
        crew.kill()
        command.kill()
        assert len(running(tmp_path)) == 1
        crew.start()
        crew.wait_transition("ctr", "STOPPED", after=stopping.id)
        assert running(tmp_path) == []
