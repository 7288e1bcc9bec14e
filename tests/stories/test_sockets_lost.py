"""Sockets that somebody takes away under a running daemon are there again, and agents come back."""

from __future__ import annotations

import shutil
from pathlib import Path

import grpc
import psutil
import pytest
from stepwarden.config import load
from stepwarden_proto import page
from stepwarden_proto.v1 import supervisor_pb2
from support.crew import Crew, stub
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(150)


def trouble(crew: Crew) -> str:
    request = supervisor_pb2.ListWorkersRequest()
    return str(crew.admin().ListWorkers(request, timeout=10, wait_for_ready=True).trouble)


def said(crew: Crew, text: str) -> None:
    def heard() -> bool:
        try:
            return any(text in event.sentence for event in crew.events())
        except grpc.RpcError:
            return False  # the server that was asked is just being replaced

    wait_for(heard, 60)


def test_a_runtime_directory_that_is_removed_comes_back_and_so_do_the_agents() -> None:
    heartbeat = {"interval": "200ms", "timeout": "30s"}
    with Crew({"w": stub("attach; idle")}, defaults={"heartbeat": heartbeat}) as crew:
        crew.ready()
        before = crew.status()["w"]
        runtime = load(crew.config).supervisor.runtime_dir
        pages = Path(psutil.Process(before.pid).environ()[page.ENV_PAGE_DIR]).parent
        shutil.rmtree(pages)  # where that is no part of it
        shutil.rmtree(runtime)
        wait_for((runtime / "admin.sock").exists)
        said(crew, "agent.sock was taken away and has been bound again")
        said(crew, "admin.sock was taken away and has been bound again")
        assert trouble(crew) == ""
        last = crew.status()["w"].ranks[0].beat_age_seconds
        # Had it lost its supervisor for good, this age would only grow.
        wait_for(lambda: crew.status()["w"].ranks[0].beat_age_seconds < last + 0.2)
        wait_for(lambda: crew.status()["w"].ranks[0].beat_age_seconds < 0.5)
        now = crew.status()["w"]
        assert (now.pid, now.state, now.deaths) == (before.pid, "HEALTHY", before.deaths)
        # The next life finds everything that a life needs.
        done = crew.cli("restart", "w", "--config", str(crew.config))
        assert done.returncode == 0, done.stderr
        crew.wait_status("w", lambda w: w.incarnation == "2" and w.state == "HEALTHY", "again")
        assert pages.is_dir()


def test_a_socket_that_cannot_be_bound_again_is_an_alarm_until_it_can() -> None:
    crew = Crew({"w": stub("attach; idle")})
    config = crew.config.read_text()
    admin = f"supervisor:\n  admin_socket: {crew.directory}/a.sock\n"
    crew.config.write_text(config.replace("supervisor:\n", admin, 1))
    with crew:
        crew.ready()
        path = load(crew.config).supervisor.agent_socket
        path.unlink()
        path.write_text("mine")
        wait_for(lambda: "something that is no socket is there" in trouble(crew))
        said(crew, "tried again each second")
        assert path.read_text() == "mine"
        path.unlink()
        wait_for(lambda: trouble(crew) == "")
        wait_for(path.is_socket)
        wait_for(lambda: crew.status()["w"].ranks[0].beat_age_seconds < 2.0)
        assert crew.status()["w"].deaths == 0
