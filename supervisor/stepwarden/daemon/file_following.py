"""Follows the configuration file: looks at it as the settings in force say, and has it reloaded."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from stepwarden.clock import Clock
from stepwarden.config import Config
from stepwarden.core.event import Event, Kind
from stepwarden.edge.config_watch import ConfigWatch


class FileFollowing:
    """Watches the file while `supervisor.reload.watch` says so.

    `reload` is called for each new content. `trouble`: why the file cannot be read now; "" for
    nothing.
    """

    def __init__(
        self,
        reload: Callable[[str], Awaitable[object]],
        clock: Clock,
        note: Callable[[Event], None],
    ) -> None:
        self._reload = reload
        self._clock = clock
        self._note = note
        self._watch: ConfigWatch | None = None
        self._how: tuple[bool, float] | None = None
        self.trouble = ""

    async def follow(self, config: Config) -> None:
        """This configuration is in force: look at its file as it says from now on."""
        settings = config.supervisor
        how = (settings.reload_watch, settings.reload_interval)
        if how == self._how:
            return
        self._how = how
        await self._stop()
        # A later configuration, or the end, may have come while the former watch was closed.
        if self._how is not how or not settings.reload_watch:
            return
        self._watch = ConfigWatch(
            Path(config.path),
            settings.reload_interval,
            self._clock,
            self._reload,
            loaded=config.identity,
            on_trouble=self._say,
        )
        self._watch.start()

    def noted(self, identity: str) -> None:
        """Somebody has read this content, for whatever reason: it is no news any more."""
        if self._watch is not None:
            self._watch.noted(identity)

    async def close(self) -> None:
        """Look no more."""
        self._how = None
        await self._stop()

    async def _stop(self) -> None:
        watch, self._watch = self._watch, None
        self._say("")
        if watch is not None:
            await watch.close()

    def _say(self, trouble: str) -> None:
        if trouble and trouble != self.trouble:
            self._note(Event(Kind.RELOAD_FAILED, trouble))
        self.trouble = trouble
