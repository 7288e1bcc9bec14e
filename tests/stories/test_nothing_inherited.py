"""O-PROC-5: a worker has nothing of the supervisor's; the next one finds everything free."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path

import psutil
from support.daemon import Daemon
from support.waiting import wait_for

WORKER = """
workers:
  w:
    agent: none
    command: [/bin/sh, -c, 'trap "" HUP; env > told.new; mv told.new told; exec sleep 600']
    cwd: DIRECTORY
    env: {COLOR: green}
    stop: {grace: 1s}
"""


def _descriptors(pid: int) -> dict[int, str]:
    links = Path(f"/proc/{pid}/fd")
    return {int(name): os.readlink(links / name) for name in os.listdir(links)}


def _masks(pid: int) -> dict[str, int]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    fields = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    return {name: int(fields[name], 16) for name in ("SigBlk", "SigIgn")}


def test_o_proc_5_a_killed_supervisor_leaves_its_port_its_sockets_and_its_lock_free(
    tmp_path: Path,
) -> None:
    with Daemon(WORKER.replace("DIRECTORY", str(tmp_path))) as daemon:
        worker = psutil.Process(daemon.wait_state("w", "HEALTHY").pid)
        wait_for((tmp_path / "told").exists)
        wait_for(lambda: worker.name() == "sleep")
        assert _descriptors(worker.pid) == {0: os.devnull, 1: str(daemon.log), 2: str(daemon.log)}
        masks = _masks(worker.pid)
        assert masks["SigBlk"] == 0
        # Of its own it ignores SIGHUP; 32 and 33 are the C library's. Nothing is ours.
        assert masks["SigIgn"] & ~(3 << 31) == 1
        assert worker.cwd() == str(tmp_path)
        assert "COLOR=green" in (tmp_path / "told").read_text().splitlines()

        daemon.kill()
        assert worker.is_running()
        _assert_free(daemon)
        # Still in the worker's presence: nobody had to end before it could begin.
        daemon.start()
        assert daemon.wait_state("w", "HEALTHY").pid == worker.pid


def _assert_free(daemon: Daemon) -> None:
    """Its lock and its port can be had at once."""
    with (daemon.directory / "state" / "lock").open("rb+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    host, _, port = daemon.health_address.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, int(port)))
