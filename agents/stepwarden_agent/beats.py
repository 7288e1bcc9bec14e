"""The beat thread: ticks on the page at each interval and says when a message is due."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable

from stepwarden_proto import ring

from stepwarden_agent import link, log
from stepwarden_agent.header import Header
from stepwarden_agent.link import Link

LOOK_SECONDS = 0.5
"""How often it looks whether steps began: the hot path may not wake anybody."""

QUIET_SECONDS = 1.0
"""Without a step for this long a rank is idle: else every gap between two steps would tell."""

MIN_GAP_SECONDS = 0.1
"""Between two messages, however often the engine changes its phase."""


class Activity:
    """Tells busy from idle by looking now and then."""

    def __init__(self) -> None:
        self._busy = False
        self._begun = 0
        self._last = float("-inf")

    def look(self, words: memoryview, now: float) -> int | None:
        """link.BUSY or link.IDLE where that has changed, else None."""
        snapshot = words[: ring.PAGE_WORDS].tolist()
        begun = ring.steps_begun(snapshot)
        if begun != self._begun or ring.open_steps(snapshot):
            self._begun, self._last = begun, now
            if not self._busy:
                self._busy = True
                return link.BUSY
        elif self._busy and now - self._last >= QUIET_SECONDS:
            self._busy = False
            return link.IDLE
        return None


class Beats:
    """One thread for one page. `uplink` is None where there is nobody to send to.

    `interval`: seconds between two ticks and, while nothing else happens, between two messages.
    `watch_steps` is called at each look: what is open then is a long step.
    """

    def __init__(
        self,
        header: Header,
        uplink: Link | None,
        interval: float,
        watch_steps: Callable[[], None],
    ) -> None:
        self._header = header
        self._watch_steps = watch_steps
        self._interval = interval
        self._uplink = uplink
        self._wake: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._wanted: int | None = None
        self._stopped = False
        self._activity = Activity()
        self._thread = threading.Thread(target=self._run, name="stepwarden-beats", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def tell(self, reason: int) -> None:
        """A message should go out soon. Safe in a signal handler."""
        self._wake.put(reason)

    def stop(self) -> None:
        """No more ticks, no more messages."""
        self._stopped = True
        self._wake.put(link.TICK)

    def _run(self) -> None:
        try:
            self._loop()
        except Exception as error:
            log.once("beats", f"the beat thread ended: {error!r}")

    def _loop(self) -> None:
        next_tick = next_message = time.monotonic()
        while True:
            now = time.monotonic()
            if now >= next_tick:
                self._header.tick()
                next_tick = max(next_tick + self._interval, now)
                self._want(link.TICK)
            self._watch_steps()
            self._want(self._activity.look(self._header.words, now))
            if self._wanted is not None and now >= next_message:
                self._send()
                next_message = now + MIN_GAP_SECONDS
            wake_at = min(next_tick, now + LOOK_SECONDS)
            if self._wanted is not None:
                wake_at = min(wake_at, next_message)
            self._sleep(max(0.0, wake_at - time.monotonic()))
            if self._stopped:
                return
            if self._uplink is not None:
                self._uplink.give_up_overdue()

    def _sleep(self, seconds: float) -> None:
        try:
            self._want(self._wake.get(timeout=seconds))
            while True:
                self._want(self._wake.get_nowait())
        except queue.Empty:
            return

    def _want(self, reason: int | None) -> None:
        # A change says more than the tick that it rides on.
        if reason is not None and (self._wanted is None or self._wanted == link.TICK):
            self._wanted = reason

    def _send(self) -> None:
        wanted, self._wanted = self._wanted, None
        if self._uplink is not None and wanted is not None:
            self._uplink.offer(wanted)
