"""Finds what `doctor` is to look at: a file, the daemon of that file, what workers inherit."""

from __future__ import annotations

import argparse
import os
import socket
import struct
from pathlib import Path

from stepwarden.cli.client import SHIPPED_SOCKET, SHIPPED_STATE_DIR, connect
from stepwarden.config import SupervisorSettings, load
from stepwarden.config.sockets import find_admin_socket
from stepwarden.doctor.subject import Daemon, Subject, inherited
from stepwarden.errors import RefusedError, StepwardenError

ASK_SECONDS = 3.0
_CREDENTIALS = struct.Struct("3i")  # struct ucred: pid, uid, gid


def find_subject(file: Path | None) -> Subject:
    """Everything about a file, or about the host alone. Raises ConfigError."""
    admin = SHIPPED_SOCKET if file is None else find_admin_socket(file)
    daemon = find_daemon(admin)
    environment = inherited(daemon)
    if file is None:
        run = SHIPPED_SOCKET.parent
        settings = SupervisorSettings(run, SHIPPED_STATE_DIR, run / "agent.sock", SHIPPED_SOCKET)
        return Subject(settings, daemon=daemon, environment=environment)
    config = load(file, environment)
    workers = tuple(config.workers.values())
    return Subject(config.supervisor, workers, config, daemon, environment)


def find_daemon(admin: Path) -> Daemon:
    """The daemon behind a socket. Never raises."""
    pid, dead = _listener(admin)
    options = argparse.Namespace(socket=admin, config=None, timeout=ASK_SECONDS)
    try:
        with connect(options) as client:
            answer = client.call("ListWorkers", client.pb.ListWorkersRequest())
    except RefusedError as error:
        return Daemon(pid, silence=str(error), refused=True)
    except StepwardenError as error:
        return Daemon(pid, silence=str(error), killed=dead)
    return Daemon(pid, answer)


def _listener(path: Path) -> tuple[int | None, bool]:
    """Who made the socket listen, as the kernel noted; None: nobody, or outside of our view.

    And whether it is a socket that somebody left there who is no more.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(os.fspath(path))
            raw = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except (OSError, ValueError) as error:
            return None, isinstance(error, ConnectionRefusedError)
    pid = int(_CREDENTIALS.unpack(raw)[0])
    return pid if pid > 1 or os.getpid() == 1 else None, False
