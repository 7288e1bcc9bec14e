"""The invitation to a life, which the supervisor leaves for processes that it does not start."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from stepwarden_proto.page import ATTACHED_PAGES, INVITATION

from stepwarden_agent import log
from stepwarden_agent.page_file import Page
from stepwarden_agent.page_move import in_place, move_page
from stepwarden_agent.settings import Settings, as_interval

LOOK_SECONDS = 1.0
"""How often it is looked at."""

_MAX_BYTES = 65536


@dataclass(frozen=True, slots=True)
class News:
    """What has changed. `settings`: the invitation that holds now; None: there is none."""

    settings: Settings | None


class Invitations:
    """Follows the invitation in `directory`, and sees to it that the page of `rank` lies there.

    Belongs to the beat thread. Whoever comes first, engine or supervisor, waits here for the other:
    `look` says what to report to whom as soon as that is known, and each time that it changes.
    """

    def __init__(self, directory: str, rank: str, page: Page) -> None:
        self._directory = directory
        self._pages = os.path.join(directory, ATTACHED_PAGES)
        self._rank = rank
        self._page = page
        self._mark: tuple[int, ...] = ()
        self._settings: Settings | None = None
        self._named = page.name
        self._next = 0.0

    def look(self, now: float) -> News | None:
        """Look, if it is time to; None where nothing has changed. Never raises."""
        if now < self._next:
            return None
        self._next = now + LOOK_SECONDS
        self._see_to_page()
        before = self._settings, self._named
        self._read()
        self._named = self._page.name
        return None if before == (self._settings, self._named) else News(self._settings)

    def _see_to_page(self) -> None:
        try:
            if not in_place(self._page, self._pages) and os.path.isdir(self._pages):
                move_page(self._page, self._pages, self._rank)
        except Exception as error:
            log.once("move", f"no progress page in {self._pages}: {error}")

    def _read(self) -> None:
        path = os.path.join(self._directory, INVITATION)
        try:
            about = os.stat(path)
            mark = (about.st_ino, about.st_mtime_ns, about.st_size)
            if mark != self._mark:
                self._settings = read_invitation(self._directory)
                self._mark = mark
        except FileNotFoundError:
            self._settings, self._mark = None, ()
        except Exception as error:
            log.once("invitation", f"cannot take the invitation {path}: {error}")
            self._settings, self._mark = None, ()


def read_invitation(directory: str) -> Settings:
    """What the invitation in `directory` says. Raises OSError, and ValueError for nonsense."""
    with Path(directory, INVITATION).open("rb") as file:
        told = json.loads(file.read(_MAX_BYTES))
    if not isinstance(told, dict):
        raise ValueError("it is no object")
    texts = {key: told.get(key, "") for key in ("worker", "incarnation", "target", "token")}
    for key, value in texts.items():
        if not isinstance(value, str) or not value:
            raise ValueError(f"{key} is missing")
    return Settings(
        worker=texts["worker"],
        incarnation=texts["incarnation"],
        target=_target(directory, texts["target"], told.get("socket", "")),
        token=texts["token"],
        page_dir=os.path.join(directory, ATTACHED_PAGES),
        interval=as_interval(told.get("interval")),
        attach=directory,
    )


def _target(directory: str, target: str, socket: object) -> str:
    """The socket by its way from here, where that is one: a volume may be mounted elsewhere."""
    if isinstance(socket, str) and socket:
        path = os.path.normpath(os.path.join(directory, socket))
        if os.path.exists(path):
            return f"unix:{path}"
    return target
