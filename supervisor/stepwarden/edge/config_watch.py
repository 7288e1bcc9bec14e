"""Notices that the configuration file holds something else than before, however it came there.

The file is read anew at each look, by its path: an editor's rename over it, the swapped directory
of a ConfigMap, and a file system that tells of nothing all look the same from here. What counts is
the content, not times or inodes: a touch or a chmod is no change, and new content with an old time
stamp is one. It counts once two looks in a row found the same, so that nobody is handed a file
that is still being written.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline
from stepwarden.edge.aside import Aside
from stepwarden.edge.periodic import Periodic
from stepwarden.naming import printable
from stepwarden.plain_file import MAX_CONFIG_BYTES, identity, read_regular

TRIGGER = "file watch"
"""What `on_change` is called with: who asks for the reload."""

LOOK_LIMIT_SECONDS = 10.0
"""A file system that has not answered by then is told of; nothing waits for it."""

OnChange = Callable[[str], Awaitable[object] | None]


class ConfigWatch:
    """Looks at `path` each `interval` seconds, on the running loop, until it is closed.

    `on_change` is called with TRIGGER, once for each new content, within two intervals of its
    last write; it is awaited where it returns an awaitable, and no look is made meanwhile.
    `loaded` is the `identity` of what was read last (Config.identity, ConfigError.identity); with
    "" the first content found is taken for it. `on_trouble` hears once why the file cannot be read
    (it was deleted, say), and "" when it can again; that alone is no change.
    """

    def __init__(
        self,
        path: Path,
        interval: float,
        clock: Clock,
        on_change: OnChange,
        *,
        loaded: str = "",
        on_trouble: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._path = Path(os.path.abspath(path))  # links in it are followed at each look, not here
        self._clock = clock
        self._on_change = on_change
        self._on_trouble = on_trouble
        self._loaded = loaded
        self._seen = ""
        self._trouble = ""
        self._told = ""
        self._aside = Aside(clock)
        self._looks = Periodic(self._look, interval, clock)

    def start(self) -> None:
        """Begin, with a look at once."""
        self._looks.start()

    async def close(self) -> None:
        """Look no more. An `on_change` under way is cancelled."""
        await self._looks.close()

    def noted(self, content: str) -> None:
        """Somebody else has read the file and found `content`, an identity; "": it could not."""
        self._loaded = content or self._loaded

    async def _look(self) -> bool:
        deadline = Deadline.after(self._clock.monotonic(), LOOK_LIMIT_SECONDS)
        try:
            found = await self._aside.call(self._read, deadline)
        except OSError as error:  # TimeoutError is one
            self._note_trouble(error.strerror or str(error))
            return True
        self._tell("")
        self._trouble = ""
        settled, self._seen = found == self._seen, found
        if settled and found != self._loaded:
            first, self._loaded = not self._loaded, found
            if not first and (under_way := self._on_change(TRIGGER)) is not None:
                await under_way
        return True

    def _read(self) -> str:
        return identity(read_regular(self._path, MAX_CONFIG_BYTES))

    def _note_trouble(self, why: str) -> None:
        # A file that is put aside and written anew is away for a moment: that is no trouble.
        if self._trouble:
            path = printable(str(self._path))
            self._tell(f"{path}: {why}; the configuration in force stays")
        self._trouble, self._seen = why, ""

    def _tell(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._on_trouble(text)
