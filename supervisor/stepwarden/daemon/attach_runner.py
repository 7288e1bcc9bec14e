"""Workers that something else starts: we leave an invitation, and their agents come to us.

The invitation is a file in a directory of the worker's user: where to beat to, by which token, and
where the pages of this life lie. It goes when the life is over, so that what the platform starts
next finds the next one or waits for it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from stepwarden_proto.page import INVITATION

from stepwarden.config import WorkerConfig
from stepwarden.daemon.life import Life
from stepwarden.daemon.runners import ATTACH, Runner
from stepwarden.edge.begun import Begun
from stepwarden.edge.launcher import SpawnFailed
from stepwarden.edge.users import user_of

AWAITED = "waits for its agent: something else starts it"


class AttachRunner(Runner):
    """`home`: below which the directories of attached workers lie.

    `target_for`: where the agents of a user's processes beat to.
    """

    kind = ATTACH

    def __init__(self, home: Path, target_for: Callable[[int], str]) -> None:
        self._home = home
        self._target_for = target_for

    async def start(
        self,
        life: Life,
        config: WorkerConfig,
        environment: Mapping[str, str],  # noqa: ARG002 - it has its own
    ) -> Begun:
        """Leave the invitation; nothing runs yet, for all we know."""
        assert config.attach is not None
        owner = await asyncio.to_thread(user_of, config.attach.expect_user)
        invitation = {
            "worker": life.worker,
            "incarnation": life.name,
            "target": self._target_for(owner.uid),
            "token": life.token,
            "page_dir": str(life.page_dir),
            "interval": config.heartbeat_interval,
        }
        directory = self._home / life.worker
        try:
            self._home.mkdir(mode=0o755, exist_ok=True)
            directory.mkdir(mode=0o700, exist_ok=True)
            os.chown(directory, owner.uid, owner.gid)
            _write(directory / INVITATION, json.dumps(invitation), owner.uid, owner.gid)
        except OSError as error:
            raise SpawnFailed(f"cannot leave an invitation in {directory}: {error}") from None
        life.held = AWAITED
        return Begun(None)

    async def before_burial(
        self,
        life: Life,
        config: WorkerConfig,  # noqa: ARG002
    ) -> None:
        """Take the invitation away: what comes now belongs to the next life."""
        with suppress(OSError):
            (self._home / life.worker / INVITATION).unlink()


def _write(path: Path, text: str, uid: int, gid: int) -> None:
    """A reader sees the old file or the new one whole, and nobody else's user any."""
    scratch = path.with_suffix(".new")
    with suppress(FileNotFoundError):
        scratch.unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(scratch, flags, 0o600)
    try:
        os.fchown(descriptor, uid, gid)
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
    os.replace(scratch, path)
