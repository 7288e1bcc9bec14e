"""Watch streams of grpc.health.v1: thousands of them on a few threads, told only of changes.

A watcher holds no thread while nothing changes. When its status changes, a sender thread hands
over the newest status; a change that came and went while the client did not read is left out. A
client that does not take a message within `STUCK_AFTER_SECONDS` is cut off, so that it cannot hold
a sender thread for ever. Those who have not yet taken any message have senders of their own, so
that a crowd of clients that never read keeps no news from those who do; and of one connection they
are all cut off together, so that a crowd is gone soon.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from stepwarden.clock import Clock
from stepwarden.core.deadline import elapsed
from stepwarden.edge.health_messages import SERVICE_UNKNOWN, HealthCheckResponse
from stepwarden.edge.health_table import HealthTable

MAX_WATCHERS = 4096
"""Open Watch streams in all; one more is answered RESOURCE_EXHAUSTED."""

RECHECK_SECONDS = 0.25
"""How often staleness is looked at when nobody publishes anything."""

STUCK_AFTER_SECONDS = 2.0

_SENDERS = 8
_GREETERS = 16

Send = Callable[[object], None]


class Watcher:
    """One stream: what it was told last, and what it has to be told."""

    def __init__(
        self, name: str, send: Send, cut_off: Callable[[], object], clock: Clock, peer: str = ""
    ) -> None:
        self.name = name
        self.peer = peer
        self.proven = False
        """True once the client has taken a message."""
        self._send = send
        self.cut_off = cut_off
        self._clock = clock
        self._lock = threading.Lock()
        self._told: int | None = None
        self._wanted: int | None = None
        self._ending = False
        self._busy = False
        self._sending_since: float | None = None

    @property
    def up_to_date(self) -> bool:
        """True where the client has taken all that it has to be told."""
        with self._lock:
            return self._told == self._wanted and not self._busy

    @property
    def stuck(self) -> bool:
        """True where the client has not taken a message for too long."""
        since, now = self._sending_since, self._clock.monotonic()
        return since is not None and elapsed(since, now) > STUCK_AFTER_SECONDS

    def offer(self, status: int, pool: ThreadPoolExecutor) -> None:
        """Let the client know `status`, unless it does already."""
        with self._lock:
            self._wanted = status
            self._get_going(pool)

    def end(self, pool: ThreadPoolExecutor) -> None:
        """End the stream after what it still has to be told."""
        with self._lock:
            self._ending = True
            self._get_going(pool)

    def _get_going(self, pool: ThreadPoolExecutor) -> None:
        if not self._busy and (self._wanted != self._told or self._ending):
            self._busy = True
            pool.submit(self._deliver)

    def _deliver(self) -> None:
        while True:
            with self._lock:
                status = self._wanted
                if status == self._told:
                    # Stays busy when it ends: nothing may be sent after the end.
                    self._busy = ends = self._ending
                    break
                self._told = status
                self._sending_since = self._clock.monotonic()
            self._send(HealthCheckResponse(status=status))
            self._sending_since = None
            self.proven = True
        if ends:
            self._send(None)


class WatcherHub:
    """All open Watch streams, and the thread that looks after them."""

    def __init__(self, table: HealthTable, clock: Clock) -> None:
        self._table = table
        self._clock = clock
        self._lock = threading.Lock()
        self._watchers: dict[int, Watcher] = {}
        self._pool = ThreadPoolExecutor(_SENDERS, thread_name_prefix="health-send")
        self._greeters = ThreadPoolExecutor(_GREETERS, thread_name_prefix="health-greet")
        self._news = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._look_after, name="health-watch", daemon=True)

    def __len__(self) -> int:
        return len(self._watchers)

    def start(self) -> None:
        """Start looking after watchers."""
        self._thread.start()

    def wake(self) -> None:
        """A snapshot was published."""
        self._news.set()

    def add(
        self, name: str, send: Send, cut_off: Callable[[], object], peer: str = ""
    ) -> Callable[[], None] | None:
        """Take in one stream and tell it its first status; returns what forgets it.

        `peer`: the connection it came by; "" where that cannot be told from others. None where
        there are too many, or we are ending.
        """
        watcher = Watcher(name, send, cut_off, self._clock, peer)
        with self._lock:
            if self._stopping or len(self._watchers) >= MAX_WATCHERS:
                return None
            self._watchers[id(watcher)] = watcher
        watcher.offer(self._status(name), self._greeters)
        return lambda: self._forget(watcher)

    @property
    def up_to_date(self) -> bool:
        """True where every client has taken the newest status of its name."""
        return all(watcher.up_to_date for watcher in self._all())

    def tell(self) -> None:
        """Offer everybody the present status now, in the caller's thread."""
        for watcher in self._all():
            watcher.offer(self._status(watcher.name), self._senders(watcher))

    def stop(self) -> None:
        """Tell everybody the last status and end their streams; waits for no client."""
        with self._lock:
            self._stopping = True
            watchers = list(self._watchers.values())
        self._news.set()
        for watcher in watchers:
            watcher.offer(self._status(watcher.name), self._senders(watcher))
            watcher.end(self._senders(watcher))

    def close(self) -> None:
        """After the server has ended: no stream can hold a sender any more."""
        self._news.set()
        if self._thread.is_alive():
            self._thread.join(STUCK_AFTER_SECONDS)
        for pool in (self._pool, self._greeters):
            pool.shutdown(wait=False, cancel_futures=True)

    def _all(self) -> list[Watcher]:
        with self._lock:
            return list(self._watchers.values())

    def _senders(self, watcher: Watcher) -> ThreadPoolExecutor:
        return self._pool if watcher.proven else self._greeters

    def _forget(self, watcher: Watcher) -> None:
        with self._lock:
            self._watchers.pop(id(watcher), None)

    def _status(self, name: str) -> int:
        status = self._table.status(name)
        return SERVICE_UNKNOWN if status is None else status

    def _cut_off_stuck(self) -> None:
        watchers = self._all()
        stuck = [watcher for watcher in watchers if watcher.stuck]
        silent = {watcher.peer for watcher in stuck if watcher.peer and not watcher.proven}
        for watcher in watchers:
            if watcher in stuck or (watcher.peer in silent and not watcher.proven):
                watcher.cut_off()

    def _look_after(self) -> None:
        while not self._stopping:
            self._news.wait(RECHECK_SECONDS)
            self._news.clear()
            for watcher in [] if self._stopping else self._all():
                watcher.offer(self._status(watcher.name), self._senders(watcher))
            self._cut_off_stuck()
