"""The beat thread: ticks on the page at each interval, and moves the stream to the supervisor on.

It is the only thread of an agent, and waits in one place: for its next tick or look, for the
supervisor, and for whoever has something to tell.
"""

from __future__ import annotations

import select
import threading
import time
from collections import deque
from collections.abc import Callable

from stepwarden_proto import ring

from stepwarden_agent import link, log
from stepwarden_agent.header import Header
from stepwarden_agent.link import Link
from stepwarden_agent.wake import Wake

LOOK_SECONDS = 0.5
"""How often it looks whether steps began: the hot path may not wake anybody."""

QUIET_SECONDS = 1.0
"""Without a step for this long a rank is idle: else every gap between two steps would tell."""

_MAX_TOLD = 64


class Activity:
    """Tells busy from idle by looking now and then."""

    def __init__(self) -> None:
        self._busy = False
        self._begun = 0
        self._last = float("-inf")

    def look(self, words: memoryview, now: float) -> int | None:
        """link.BUSY or link.IDLE where that has changed, else None."""
        begun = ring.steps_begun(words)
        if begun == self._begun and not self._busy:
            # Nothing can be open that was not seen when it began: the rest is not needed.
            return None
        if begun != self._begun or ring.open_steps(words[: ring.PAGE_WORDS].tolist()):
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
    `watch_steps` is called at each look: what is open then is a long step. `wake` is what `uplink`
    was given.
    """

    def __init__(
        self,
        header: Header,
        uplink: Link | None,
        interval: float,
        watch_steps: Callable[[], None],
        wake: Wake,
    ) -> None:
        self._header = header
        self._watch_steps = watch_steps
        self._interval = interval
        self._uplink = uplink
        self._wake = wake
        self._told: deque[int] = deque(maxlen=_MAX_TOLD)
        self._next_tick = self._next_look = 0.0
        self._silent = self._ending = self._stopped = False
        self._done = threading.Event()
        self._activity = Activity()
        self._waiter = _Waiter(wake)
        self._follow: Callable[[float], None] | None = None
        self._thread = threading.Thread(target=self._run, name="stepwarden-beats", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def follow(self, look: Callable[[float], None]) -> None:
        """Before the start: have `look` called at each look, which may call `connect`."""
        self._follow = look

    def connect(self, uplink: Link | None, interval: float) -> None:
        """Send by this link from now on; None: to nobody. The beat thread alone may call it."""
        before, self._uplink = self._uplink, uplink
        self._interval = interval
        if before is not None:
            before.drop()

    def tell(self, reason: int) -> None:
        """A message should go out soon. Safe in a signal handler."""
        self._told.append(reason)
        self._wake()

    def finish(self, seconds: float) -> None:
        """No more ticks; say bye where somebody listens, and end. Waits for `seconds` at most."""
        self._ending = True
        self._wake()
        if self._thread.is_alive():
            self._done.wait(seconds)
        self.stop()

    def stop(self) -> None:
        """No more ticks, no more messages, no bye."""
        self._stopped = True
        self._wake()

    def silence(self) -> None:
        """No more messages; ticks go on."""
        self._silent = True
        self._wake()

    def abandon(self) -> None:
        """This is a forked child, which the thread is not in: let go of the descriptors."""
        self._wake.close()
        if self._uplink is not None:
            self._uplink.abandon()

    def _run(self) -> None:
        try:
            self._loop()
        except Exception as error:
            log.once("beats", f"the beat thread ended: {error!r}")
        finally:
            if self._uplink is not None:
                self._uplink.drop()
            self._done.set()

    def _loop(self) -> None:
        events = 0
        self._next_tick = self._next_look = time.monotonic()
        while not self._stopped:
            now = time.monotonic()
            if not self._ending:
                self._tick_and_look(now)
            if self._uplink is not None:
                self._move(self._uplink, now, events)
            if self._ending and (self._uplink is None or self._uplink.over):
                return
            events = self._waiter.wait(self._uplink, self._wake_at() - time.monotonic())

    def _tick_and_look(self, now: float) -> None:
        ticks = now >= self._next_tick
        if ticks:
            self._header.tick()
            self._next_tick = max(self._next_tick + self._interval, now)
            self._told.append(link.TICK)
        if ticks or now >= self._next_look:
            self._next_look = now + LOOK_SECONDS
            self._watch_steps()
            if self._follow is not None:
                self._follow(now)
            change = self._activity.look(self._header.words, now)
            if change is not None:
                self._told.append(change)

    def _move(self, uplink: Link, now: float, events: int) -> None:
        if self._silent:
            uplink.drop()
        while self._told:
            uplink.offer(self._told.popleft())
        if self._ending:
            uplink.end()
        uplink.turn(now, events)

    def _wake_at(self) -> float:
        wake_at = min(self._next_tick, self._next_look)
        due_at = None if self._uplink is None else self._uplink.due_at()
        return wake_at if due_at is None else min(wake_at, due_at)


class _Waiter:
    """Waits for the connection, for a wake, or for the time to pass: whatever comes first."""

    def __init__(self, wake: Wake) -> None:
        self._wake = wake
        self._poll = select.poll()
        self._watched = (-1, 0)
        if wake.descriptor >= 0:
            self._poll.register(wake.descriptor, select.POLLIN)

    def wait(self, uplink: Link | None, seconds: float) -> int:
        """What poll says of the connection by then; 0: nothing."""
        self._watch((-1, 0) if uplink is None else uplink.interest())
        events = 0
        for descriptor, found in self._poll.poll(max(0.0, seconds) * 1000.0):
            if descriptor == self._watched[0]:
                events = found
            elif found & select.POLLNVAL:
                # The engine has closed it, with everything else that it had not opened itself.
                self._poll.unregister(descriptor)
                self._wake.forget()
            else:
                self._wake.clear()
        return events

    def _watch(self, wanted: tuple[int, int]) -> None:
        if wanted == self._watched:
            return
        if self._watched[0] >= 0 and self._watched[0] != wanted[0]:
            self._poll.unregister(self._watched[0])
        if wanted[0] >= 0:
            self._poll.register(*wanted)
        self._watched = wanted
