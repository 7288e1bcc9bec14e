"""What `top` knows of the daemon, gathered by threads of their own.

The screen looks at `Feed.known` and never asks the daemon itself, so a daemon that is frozen, gone
or slow holds up no key press. Everything kept is bounded.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from stepwarden.cli.client import Client
from stepwarden.cli.status import past
from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline
from stepwarden.errors import StepwardenError

MOST_EVENTS = 500
SAID_SECONDS = 10.0
"""What came of a command is shown for so long."""

POLL_SECONDS = 1.0
AGAIN_SECONDS = 1.0
"""Between two tries to follow the events of a daemon that is away."""

Connect = Callable[[], AbstractContextManager[Client]]


@dataclass(frozen=True)
class Details:
    """One worker in full; `trouble` says why it could not be read, "" where it could."""

    name: str
    worker: Any = None
    events: tuple[Any, ...] = ()
    trouble: str = ""


@dataclass(frozen=True)
class Known:
    """What is known now. `version` grows with each change.

    `answer`: the last list of workers, None before the first, received `at`. `trouble`: why the
    daemon does not answer, "" while it does. `said`: what came of the last command.
    """

    version: int = 0
    answer: Any = None
    at: float = 0.0
    trouble: str = ""
    events: tuple[Any, ...] = ()
    said: str = ""
    details: Details | None = None


class Feed:
    """Polls the list, follows the events, gives commands. Every method may be called any time."""

    def __init__(self, connect: Connect, clock: Clock) -> None:
        self._connect = connect
        self._clock = clock
        self._lock = threading.Lock()
        self._known = Known()
        self._events: deque[Any] = deque(maxlen=MOST_EVENTS)
        self._seen: deque[tuple[int, str]] = deque(maxlen=2 * MOST_EVENTS)
        self._wanted = ""
        self._said_until = Deadline.never()
        self._ended = threading.Event()
        self._poke = threading.Event()

    @property
    def known(self) -> Known:
        """What is known now; never waits for the daemon."""
        with self._lock:
            if self._known.said and self._said_until.passed(self._clock.monotonic()):
                self._change(said="")
            return self._known

    def start(self) -> None:
        """Begin to ask."""
        for work in (self._poll, self._follow):
            threading.Thread(target=work, name="stepwarden-top", daemon=True).start()

    def end(self) -> None:
        """Ask no more; waits for nothing."""
        self._ended.set()
        self._poke.set()

    def watch(self, name: str) -> None:
        """Know this worker in full from now on; "": none."""
        with self._lock:
            self._wanted = name
            details = Details(name, trouble="asking the daemon") if name else None
            self._change(details=details)
        self._poke.set()

    def command(self, method: str, verb: str, name: str) -> None:
        """Give a command; `known.said` tells what came of it."""
        self._say(f"{verb} {name} ...")
        arguments = (method, name)
        threading.Thread(target=self._command, args=arguments, daemon=True).start()

    def _command(self, method: str, name: str) -> None:
        try:
            with self._connect() as client:
                request = client.pb.WorkerCommandRequest(name=name)
                self._say(client.call(method, request).sentence)
        except StepwardenError as error:
            self._say(str(error))
        self._poke.set()

    def forget_said(self) -> None:
        """What came of the last command has been read."""
        self._say("")

    def _say(self, text: str) -> None:
        with self._lock:
            self._said_until = Deadline.after(self._clock.monotonic(), SAID_SECONDS)
            self._change(said=text)

    def _change(self, **changes: Any) -> None:
        self._known = replace(self._known, version=self._known.version + 1, **changes)

    def _poll(self) -> None:
        while not self._ended.is_set():
            self._poke.clear()
            self._ask()
            self._poke.wait(POLL_SECONDS)

    def _ask(self) -> None:
        try:
            with self._connect() as client:
                answer = client.call("ListWorkers", client.pb.ListWorkersRequest())
        except StepwardenError as error:
            with self._lock:
                self._change(trouble=str(error))
            return
        with self._lock:
            self._change(answer=answer, at=self._clock.monotonic(), trouble="")
            name = self._wanted
        if name:
            self._ask_details(name)

    def _ask_details(self, name: str) -> None:
        try:
            with self._connect() as client:
                worker = client.call("GetWorker", client.pb.GetWorkerRequest(name=name)).worker
                found = Details(name, worker, tuple(past(client, name)))
        except StepwardenError as error:
            found = Details(name, trouble=str(error))
        with self._lock:
            if self._wanted == name:
                self._change(details=found)

    def _follow(self) -> None:
        while not self._ended.is_set():
            try:
                with self._connect() as client:
                    request = client.pb.WatchEventsRequest(follow=True, limit=MOST_EVENTS)
                    for event in client.stream("WatchEvents", request, endless=True):
                        self._happened(event)
            except StepwardenError:
                pass  # the list of workers says that the daemon is away
            self._ended.wait(AGAIN_SECONDS)

    def _happened(self, event: Any) -> None:
        # After a reconnection the past comes again; a daemon with a new history counts anew.
        key = (event.id, event.time)
        with self._lock:
            if key not in self._seen:
                self._seen.append(key)
                self._events.append(event)
                self._change(events=tuple(self._events))
