"""Who may use the sockets of a real daemon, under any umask and at every instant."""

from __future__ import annotations

import grp
import os
import subprocess
import sys
from pathlib import Path

import pytest
from stepwarden.errors import ExitCode
from support.daemon import Daemon, free_port
from support.modes import ModeWatch, umask

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be three users"),
]

BODY = "workers: {w: {shell: 'sleep 1000', agent: none}}\n"
GROUP = grp.getgrnam("daemon")
IN_GROUP, STRANGER = 54_321, 54_322
"""Users B and C; that they have no name matters to nobody."""

AS_USER = """
import encodings.ascii, encodings.idna, encodings.latin_1, os, sys  # may lie in root's own home
import stepwarden_proto.v1.agent_pb2
from stepwarden_agent import Agent
uid, gid = int(sys.argv[1]), int(sys.argv[2])
os.setgroups([]); os.setresgid(gid, gid, gid); os.setresuid(uid, uid, uid)
"""
CONNECT = """
import socket
with socket.socket(socket.AF_UNIX) as s:
    print(os.strerror(s.connect_ex(sys.argv[3])))
"""
BEAT = """
import logging, sys, threading, time
told = threading.Event()
class Told(logging.StreamHandler):
    def emit(self, record):
        super().emit(record)
        told.set()
logging.getLogger("stepwarden_agent").addHandler(Told(sys.stderr))
agent = Agent.from_env()
agent.phase("idle")
told.wait(60)
time.sleep(1.0)  # time for further tries: they are not told of again
"""


def run_as(daemon: Daemon, uid: int, code: str, *words: str, **env: str) -> str:
    """What a program says that has become this user, of the group only if it is B."""
    gid = GROUP.gr_gid if uid == IN_GROUP else STRANGER
    done = subprocess.run(
        [sys.executable, "-c", AS_USER + code, str(uid), str(gid), *words],
        env={**daemon.environment(), **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return (done.stdout + done.stderr).strip()


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o000])
def test_o_grpc_6_the_group_gets_in_and_nobody_else_at_no_instant(mask: int) -> None:
    sockets = f'  socket_mode: "0660"\n  socket_group: {GROUP.gr_name}\n'
    daemon = Daemon(BODY, supervisor=sockets)
    daemon.directory.chmod(0o755)
    run = daemon.directory / "run"
    agent, admin = run / "agent.sock", run / "admin.sock"
    with umask(mask), ModeWatch(agent, admin, run) as watch, daemon:
        for path in (agent, admin):
            assert run_as(daemon, IN_GROUP, CONNECT, str(path)) == "Success"
            assert run_as(daemon, STRANGER, CONNECT, str(path)) == "Permission denied"
        target = {"STEPWARDEN_TARGET": f"unix:{agent}", "STEPWARDEN_TOKEN": "t"}
        said = run_as(daemon, STRANGER, BEAT, **target)
        lines = [line for line in said.splitlines() if "stepwarden" in line or "supervisor" in line]
        assert len(lines) == 1, said
        assert f"no supervisor at unix:{agent}: PERMISSION: Permission denied" in lines[0]
        assert str(STRANGER) in lines[0]
    # Made with 0700 and opened when owner and mode are as they are to be.
    assert watch.modes(run) <= {0o700, 0o755}
    assert watch.seen["agent.sock"] == {(0o660, GROUP.gr_gid)}
    assert watch.seen["admin.sock"] == {(0o660, GROUP.gr_gid)}


@pytest.mark.parametrize("length", [107, 108, 200])
def test_o_grpc_6_a_path_that_no_socket_can_have_is_refused_by_the_check(
    tmp_path: Path, length: int
) -> None:
    path = "/tmp/" + "x" * (length - 5)
    file = tmp_path / "c.yaml"
    file.write_text(f"supervisor: {{agent_socket: {path}}}\n{BODY}")
    daemon = Daemon(BODY)
    done = daemon.cli("check", str(file))
    if length == 107:
        assert done.returncode == 0
        return
    assert done.returncode == ExitCode.CONFIG
    assert "supervisor.agent_socket" in done.stdout
    assert f"{length} bytes" in done.stdout
    assert "at most 107 bytes" in done.stdout


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_o_grpc_6_what_lies_at_the_path_and_is_no_socket_stops_the_start(kind: str) -> None:
    daemon = Daemon(BODY, supervisor=f'  agents: {{listen: ["127.0.0.1:{free_port()}"]}}\n')
    path = daemon.directory / "run" / "agent.sock"
    path.parent.mkdir(mode=0o755)
    path.mkdir() if kind == "directory" else path.write_text("precious")
    done = daemon.cli("run", str(daemon.config))
    assert done.returncode == ExitCode.REFUSED, done.stderr
    line = done.stderr.splitlines()[-1]
    assert f"cannot listen on {path}: something that is no socket is there" in line
    assert "supervisor.agent_socket or runtime_dir names it" in line
    assert path.is_dir() if kind == "directory" else path.read_text() == "precious"
