"""Workers that something else starts: we leave an invitation, and their agents come to us.

    runtime_dir/attach/NAME/life.json   the invitation, 0600: where to beat to, and by which token
    runtime_dir/attach/NAME/pages/      the pages of its agents, 0700

Both are the worker's user's, the directory around them is ours, so that nobody else can exchange
them. The invitation goes when the life is over: what the platform starts next finds the next one or
waits for it. The pages stay where they are, for a process may be there before its life begins.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from stepwarden_proto.page import ATTACHED_PAGES, INVITATION

from stepwarden.clock import Clock
from stepwarden.config import WorkerConfig
from stepwarden.daemon.life import Life
from stepwarden.daemon.runners import ATTACH, Runner
from stepwarden.edge.begun import Begun
from stepwarden.edge.launcher import SpawnFailed
from stepwarden.edge.users import Owner, look_up

AWAITED = "waits for its agent: something else starts it"

_UNIX = "unix:"


class AttachRunner(Runner):
    """`home`: below which the directories of attached workers lie.

    `target_for`: where the agents of a user's processes beat to.
    """

    kind = ATTACH

    def __init__(self, home: Path, target_for: Callable[[int], str], clock: Clock) -> None:
        self._home = home
        self._target_for = target_for
        self._clock = clock

    def pages_of(self, worker: str) -> Path | None:
        """One directory for all lives of the worker."""
        return self._home / worker / ATTACHED_PAGES

    async def start(
        self,
        life: Life,
        config: WorkerConfig,
        environment: Mapping[str, str],  # noqa: ARG002 - it has its own
    ) -> Begun:
        """Leave the invitation; nothing runs yet, for all we know."""
        await self.resume(life, config)
        life.held = AWAITED
        return Begun(None)

    async def resume(self, life: Life, config: WorkerConfig) -> None:
        """Leave the invitation, also anew: the runtime directory may have gone with a daemon."""
        assert config.attach is not None
        owner = await look_up(config.attach.expect_user, None, self._clock)
        directory = self._home / life.worker
        target = self._target_for(owner.uid)
        invitation = {
            "worker": life.worker,
            "incarnation": life.name,
            "target": target,
            "socket": _way_to(target, directory),
            "token": life.token,
            "interval": config.heartbeat_interval,
        }
        try:
            _make_directory(self._home, 0o711)
            _make_directory(directory, 0o711)
            _make_directory(directory / ATTACHED_PAGES, 0o700, owner)
            _write(directory / INVITATION, json.dumps(invitation), owner)
        except OSError as error:
            raise SpawnFailed(f"cannot leave an invitation in {directory}: {error}") from None

    async def before_burial(
        self,
        life: Life,
        config: WorkerConfig,  # noqa: ARG002
    ) -> None:
        """Take the invitation away: what comes now belongs to the next life."""
        self.withdraw(life.worker)

    def withdraw(self, worker: str) -> None:
        """No invitation to any life of this worker. Never raises."""
        with suppress(OSError):
            (self._home / worker / INVITATION).unlink()


def _way_to(target: str, directory: Path) -> str:
    """The socket as seen from the invitation: another container has all of it elsewhere."""
    if not target.startswith(_UNIX):
        return ""
    return os.path.relpath(target.removeprefix(_UNIX), directory)


def _make_directory(path: Path, mode: int, owner: Owner | None = None) -> None:
    path.mkdir(mode=0o700, exist_ok=True)
    # Its parent is ours alone, so this is the directory that was made here, and no link.
    if owner is not None:
        os.chown(path, owner.uid, owner.gid, follow_symlinks=False)
    path.chmod(mode)


def _write(path: Path, text: str, owner: Owner) -> None:
    """A reader sees the old file or the new one whole, and nobody else's user any."""
    scratch = path.with_suffix(".new")
    with suppress(FileNotFoundError):
        scratch.unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(scratch, flags, 0o600)
    try:
        os.fchown(descriptor, owner.uid, owner.gid)
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
    os.replace(scratch, path)
