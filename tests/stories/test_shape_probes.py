"""Workers without an agent: readiness probes and progress counters, with the real daemon."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from stepwarden_proto.v1 import supervisor_pb2
from support.crew import PYTHON, Crew, shell, span, stub
from support.daemon import free_port

PROGRAM = str(Path(__file__).parents[1] / "support" / "page_server.py")
BACKENDS = {"gpu": {"step": {"base": "1s", "per_seq": "0ms"}}}
OFTEN = {"interval": "100ms", "timeout": "1s"}
MANY = {"delay": "100ms", "jitter": 0, "limit": 50}


@dataclass
class Server:
    """A worker that serves the files of its directory."""

    directory: Path
    port: int

    @classmethod
    def make(cls, directory: Path, *files: str) -> Server:
        directory.mkdir()
        made = cls(directory, free_port())
        for name in files:
            made.show(name)
        return made

    def show(self, name: str, text: str = "") -> None:
        scratch = self.directory / f".{name}"
        scratch.write_text(text)
        scratch.rename(self.directory / name)

    def metrics(self, done: int, running: int) -> None:
        self.show("metrics", f"tokens_total {done}\nrunning {running}\n")

    def section(self, *options: str, **more: Any) -> dict[str, Any]:
        command = [PYTHON, "-I", "-S", PROGRAM, str(self.port), str(self.directory), *options]
        return {"command": command, "agent": "none", "backend": "gpu", "restart": MANY, **more}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def progress(self, **more: Any) -> dict[str, Any]:
        counted = {"url": f"{self.url}/metrics", "counter": "tokens_total", "work": "running"}
        return {**counted, "interval": "200ms", "budget": "2s", **more}


def test_each_kind_of_probe_ends_the_start_when_it_says_yes(tmp_path: Path) -> None:
    tcp, http = Server.make(tmp_path / "t"), Server.make(tmp_path / "h", "listen")
    go = tmp_path / "go"
    asks = ["/bin/sh", "-c", f"test -e {go} || {{ echo not yet; exit 1; }}"]
    workers = {
        "tcp": tcp.section(ready={"tcp": f"127.0.0.1:{tcp.port}", **OFTEN}),
        "http": http.section(ready={"http": f"{http.url}/health", **OFTEN}),
        "grpc": shell(
            "exec sleep 600", ready={"grpc": "ADDRESS", "service": "worker/other"} | OFTEN
        ),
        "command": shell("exec sleep 600", ready={"command": asks, **OFTEN}),
        "delay": shell("exec sleep 600", ready={"delay": "2s"}),
        "other": stub("attach loading; idle"),
    }
    crew = Crew(workers, backends=BACKENDS)
    crew.config.write_text(crew.config.read_text().replace("ADDRESS", crew.health_address))
    with crew:
        delayed = crew.wait_transition("delay", "HEALTHY")
        begun = crew.wait_event(lambda e: e.kind == "started", worker="delay")
        assert span(begun, delayed) >= 2.0 - 0.1
        seen = crew.status()
        for name in ("tcp", "http", "grpc", "command"):
            assert seen[name].state == "STARTING", name
            assert seen[name].pid
        for name, said in {
            "tcp": "refused",
            "http": "503",
            "grpc": "NOT_SERVING",
            "command": "not yet",
        }.items():
            shown = crew.wait_status(name, partial(_heard, said), said)
            assert shown.state == "STARTING"
        tcp.show("listen")
        http.show("health")
        go.touch()
        crew.stub("other").send("phase idle")
        for name in ("tcp", "http", "grpc", "command"):
            ready = crew.wait_transition(name, "HEALTHY")
            assert ready.sentence == "ready: its probe has passed"
        (http.directory / "health").unlink()
        last = crew.events()[-1].id
        crew.stub("other").send("step 5")
        crew.wait_event(lambda e: e.id >= last)
        assert crew.status()["http"].state == "HEALTHY", "a later no is no death"


def _heard(said: str, worker: supervisor_pb2.Worker) -> bool:
    return said in worker.probe


def test_a_probe_that_never_says_yes_is_a_late_start(tmp_path: Path) -> None:
    mute = Server.make(tmp_path / "s", "listen")
    worker = mute.section(
        ready={"http": f"{mute.url}/health", **OFTEN},
        startup={"budget": "2s"},
        retry={"window": "500ms"},
    )
    with Crew({"w": worker}, backends=BACKENDS) as crew:
        begun = crew.wait_transition("w", "STARTING")
        late = crew.wait_transition("w", "UNHEALTHY")
        assert late.cause == "startup"
        assert 2.0 - 0.1 <= span(begun, late) <= 2.0 + crew.leniency() + 0.5
        dead = crew.wait_transition("w", "DEAD")
        assert dead.cause == "startup"
        assert "not ready" in dead.sentence or "start" in dead.sentence
        mute.show("health")
        crew.wait_transition("w", "HEALTHY", after=dead.id)


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Crew, dict[str, Server]]]:
    """Four of them at once, for each takes its time."""
    home = tmp_path_factory.mktemp("counted")
    servers = {n: Server.make(home / n, "listen") for n in ("frozen", "busy", "idle", "moving")}
    for server in servers.values():
        server.metrics(done=100, running=0)
    # The cap is far away: by then the busy one is told to go on, on a busy machine too.
    hard = {"busy_factor": 60, "retry": {"window": "1s"}}
    workers = {
        name: server.section(
            *(["spin"] if name == "busy" else []),
            progress=server.progress(),
            ready={"tcp": f"127.0.0.1:{server.port}", **OFTEN},
            **hard,
        )
        for name, server in servers.items()
    }
    with Crew(workers, backends=BACKENDS) as crew:
        crew.ready()
        yield crew, servers


def test_a_frozen_counter_with_work_is_late_and_dead_where_nothing_works(
    counted: tuple[Crew, dict[str, Server]],
) -> None:
    crew, servers = counted
    frozen, busy, idle, moving = (servers[n] for n in ("frozen", "busy", "idle", "moving"))
    busy.show("spin")
    for server in (frozen, busy, moving):
        server.metrics(done=100, running=2)
    moving.metrics(done=101, running=2)
    late = crew.wait_transition("frozen", "UNHEALTHY")
    assert late.cause == "progress"
    assert "which may be one long step or a hang" in late.sentence
    dead = crew.wait_transition("frozen", "DEAD")
    assert dead.cause == "progress"
    assert 1.0 - 0.1 <= span(late, dead) <= 1.0 + crew.leniency() + 0.5
    frozen.metrics(done=0, running=0)
    crew.wait_transition("frozen", "HEALTHY", after=dead.id)
    bad = crew.wait_transition("busy", "UNHEALTHY")
    granted = crew.wait_event(lambda e: e.kind == "retry" or "window" in e.kind, worker="busy")
    assert granted.id > bad.id
    busy.metrics(done=101, running=2)
    well = crew.wait_transition("busy", "HEALTHY", after=bad.id)
    assert "counter" in well.sentence or "late" in well.sentence, well.sentence
    assert crew.status()["busy"].false_alarms >= 1
    busy.metrics(done=102, running=0)
    moving.metrics(done=102, running=0)
    assert "UNHEALTHY" not in crew.states("idle"), "idle is never a hang"
    assert idle.directory.exists()
