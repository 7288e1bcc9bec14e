"""Hands each new event to those who follow; a follower that does not keep up is let go."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from stepwarden.edge.views import EventFilter, RecordedEvent

MAX_FOLLOWERS = 256
QUEUE_EVENTS = 1000


class Subscription:
    """One follower's queue, bounded; `overrun` once it did not keep up."""

    def __init__(self, wanted: EventFilter) -> None:
        self._wanted = wanted
        self._queue: asyncio.Queue[RecordedEvent | None] = asyncio.Queue(QUEUE_EVENTS)
        self.overrun = False

    def offer(self, recorded: RecordedEvent) -> None:
        """Queue an event that this follower asked for."""
        if not self._wanted.wants(recorded):
            return
        try:
            self._queue.put_nowait(recorded)
        except asyncio.QueueFull:
            self.overrun = True

    @property
    def drained(self) -> bool:
        """Every event so far has been taken."""
        return self._queue.empty()

    def close(self) -> None:
        """There will be no more; a waiting `next` returns None."""
        if not self._queue.full():
            self._queue.put_nowait(None)

    async def next(self) -> RecordedEvent | None:
        """The next event, waited for; None at the end."""
        return await self._queue.get()


class EventHub:
    """All followers. Used on the main loop only."""

    def __init__(self) -> None:
        self._subscriptions: set[Subscription] = set()

    def __len__(self) -> int:
        return len(self._subscriptions)

    @property
    def full(self) -> bool:
        """No more followers are taken."""
        return len(self._subscriptions) >= MAX_FOLLOWERS

    def publish(self, recorded: RecordedEvent) -> None:
        """Hand an event to every follower; never waits."""
        for subscription in self._subscriptions:
            subscription.offer(recorded)

    @contextmanager
    def subscribe(
        self, worker: str = "", kinds: frozenset[str] = frozenset()
    ) -> Iterator[Subscription]:
        """Follow one worker's events, or all with ""; of some kinds, or all with none."""
        subscription = Subscription(EventFilter(worker, kinds))
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)

    def close(self) -> None:
        """Let every follower go."""
        for subscription in self._subscriptions:
            subscription.close()
