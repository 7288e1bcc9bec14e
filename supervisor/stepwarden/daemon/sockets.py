"""Where agents and operators reach this daemon, and which user may use which socket.

A worker that runs as another user gets an agent socket of its own user, so that no socket has to
be open to all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from stepwarden.clock import Clock
from stepwarden.config import Config, WorkerConfig
from stepwarden.edge.listen import Target, TcpTarget, UnixTarget, group_id, parse_target
from stepwarden.edge.users import known_users
from stepwarden.exposure import ListenSettings


class Sockets:
    """Every address of this daemon."""

    def __init__(self, config: Config, clock: Clock) -> None:
        settings = config.supervisor
        group = group_id(settings.socket_group)
        mode = settings.socket_mode
        self._agent_socket = settings.agent_socket
        self.agent = UnixTarget(settings.agent_socket, mode, group, _key("agent"))
        self.admin = UnixTarget(settings.admin_socket, mode, group, _key("admin"))
        users = other_users(config.workers.values(), clock)
        self._of_users = {uid: self._for(uid) for uid in users}
        tcp = targets(settings.agents, "supervisor.agents")
        self.agents: list[Target] = [self.agent, *self._of_users.values(), *tcp]

    def missing(self, users: Iterable[int]) -> list[UnixTarget]:
        """Sockets that these users need and that are not there yet."""
        return [self._for(uid) for uid in users if uid not in self._of_users]

    def add(self, bound: Iterable[UnixTarget]) -> None:
        """These sockets of users are bound now."""
        for target in bound:
            if target.owner is not None:
                self._of_users[target.owner] = target
                self.agents.append(target)

    def _for(self, uid: int) -> UnixTarget:
        path = _for_user(self._agent_socket, uid)
        return UnixTarget(path, 0o600, None, _key("agent"), owner=uid)

    def target_for(self, uid: int) -> str:
        """Where an agent of this user beats to."""
        return str(self._of_users.get(uid, self.agent))


def targets(settings: ListenSettings, key: str) -> list[Target]:
    """The addresses of a listener; `key` is its section in the configuration, for errors."""
    parsed = (parse_target(address, key=f"{key}.listen") for address in settings.addresses)
    return [
        replace(target, tls=settings.tls, insecure=settings.insecure)
        if isinstance(target, TcpTarget)
        else target
        for target in parsed
    ]


def other_users(workers: Iterable[WorkerConfig], clock: Clock) -> list[int]:
    """Users of workers that are not ours.

    One that the host does not know, or does not tell of in time, has no socket: its start says so.
    Asks the host: may block for as long as `known_users`.
    """
    names = [w.run_as.user if w.attach is None else w.attach.expect_user for w in workers]
    return sorted({*known_users(names, clock).values()} - {os.geteuid()})


def _for_user(socket: Path, uid: int) -> Path:
    return socket.with_name(f"{socket.stem}-{uid}{socket.suffix}")


def _key(socket: str) -> str:
    return f"supervisor.{socket}_socket or runtime_dir"
