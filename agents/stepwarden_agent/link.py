"""The stream to the supervisor, moved on by the beat thread; it never waits.

One message is in flight at most: the next one is made when the last was acknowledged, from what
is true by then, so the newest always wins. Nothing is sent before the supervisor has shown that it
listens: a frozen one would find a pile of old messages when it wakes.
"""

from __future__ import annotations

import os
import random
import select
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from stepwarden_proto.channel import KEEPALIVE_TIME_MS, KEEPALIVE_TIMEOUT_MS
from stepwarden_proto.page import TOKEN_METADATA_KEY

from stepwarden_agent import forking, log
from stepwarden_agent.settings import Settings, TlsSettings
from stepwarden_agent.wire.call import Call
from stepwarden_agent.wire.dial import Dial
from stepwarden_agent.wire.errors import TlsError
from stepwarden_agent.wire.target import Target, parse_target

TICK, ATTACH, PHASE, BUSY, IDLE, LEASE, BYE = range(7)
"""Codes of BeatReason, repeated here because the stubs are imported late."""

# What is told when several things happened since the last message: the rightmost.
_RANKING = (TICK, BUSY, IDLE, LEASE, PHASE, ATTACH, BYE)

METHOD = "/stepwarden.v1.AgentService/Attach"

CONNECT_SECONDS = 5.0
"""A supervisor that has not taken the connection and greeted by then is given up."""

MESSAGE_SECONDS = 5.0
"""A message that is not acknowledged by then is given up, and the stream with it."""

MIN_GAP_SECONDS = 0.1
"""Between two messages, however often the engine changes its phase."""

FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 0.25, 2.0
"""Between two attempts: doubled with each failure, up to the second."""

KEEPALIVE_SECONDS = KEEPALIVE_TIME_MS / 1000.0
PING_SECONDS = KEEPALIVE_TIMEOUT_MS / 1000.0

_REFUSALS = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED", "INVALID_ARGUMENT"})
_READABLE = select.POLLIN | select.POLLHUP | select.POLLERR

MakeMessage = Callable[[Any, int], Any]
"""Makes the message for a reason; the first argument is the module of the stubs."""


class _LostError(Exception):
    """The stream is over; for a reason with a name."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status


class Link:
    """Sends messages to `settings.target`, and keeps at it until `end` or `drop`.

    All methods but `abandon` belong to one thread, which calls `turn` when there is something on
    the descriptor of `interest`, and at `due_at` at the latest. `connected`: the supervisor
    listens. `over`: nothing is left to do. Raises ValueError for settings that nothing can be
    reached with.
    """

    def __init__(
        self, settings: Settings, make: MakeMessage, wake: Callable[[], None] = lambda: None
    ) -> None:
        self._settings = settings
        self._make = make
        self._wake = wake
        self._target = parse_target(settings.target)
        self._secure = _secure(settings, self._target)
        self._call = self._new_call()
        self._stubs: Any = None
        self._due: int | None = None
        self._draw = random.Random()  # the engine's own seed is left alone
        self._failures = 0
        self._dial: Dial | None = None
        self._up = False  # the socket is connected
        self._begun = False  # the call is open
        self._sent: int | None = None  # number of the message in flight
        self._next_try = self._next_send = self._heard_at = 0.0
        self._deadline: float | None = None
        self._ending = self._bye_sent = False
        self.connected = False
        self.over = False

    def offer(self, reason: int) -> None:
        """Something happened; a message goes out as soon as the last one is acknowledged."""
        if self._due is None or _RANKING.index(reason) > _RANKING.index(self._due):
            self._due = reason

    def end(self) -> None:
        """Say bye where somebody listens; `over` tells when that has been heard."""
        if self._ending:
            return
        self._ending = True
        if self.connected:
            self.offer(BYE)
        else:
            self.drop()

    def drop(self) -> None:
        """End without a bye."""
        self.over = True
        if self._up and self._dial is not None and self._dial.socket is not None:
            with suppress(OSError):
                self._call.leave()
                self._dial.send(self._call.out)
        self._hang_up()

    def abandon(self) -> None:
        """This is a forked child: the connection is the parent's, and nothing may be sent on it."""
        self.over = True
        if self._dial is not None:
            self._dial.close()

    def interest(self) -> tuple[int, int]:
        """The descriptor and the events to wait for; (-1, 0): none."""
        if self._dial is None:
            return -1, 0
        return self._dial.interest(self._up and bool(self._call.out))

    def due_at(self) -> float | None:
        """The instant at which `turn` has to be called though nothing arrives; None: never."""
        if self.over:
            return None
        if self._dial is None:
            return self._next_try
        if self._deadline is not None:
            return self._deadline
        quiet = self._heard_at + KEEPALIVE_SECONDS
        return quiet if self._due is None else min(quiet, self._next_send)

    def turn(self, now: float, events: int = 0) -> None:
        """Do what can be done at `now`, without waiting; `events`: what poll says of the
        descriptor."""
        if self.over or not self._load_stubs():
            return
        try:
            if self._dial is None and now >= self._next_try:
                self._dial_up()
            if self._dial is not None:
                self._move(self._dial, now, events)
        except _LostError as lost:
            self._lose(now, lost.status, str(lost))
        except TlsError as error:
            self._lose(now, "TLS", str(error))
        except PermissionError as error:
            self._lose(now, "PERMISSION", f"{error.strerror} (this user is {os.geteuid()})")
        except OSError as error:
            self._lose(now, "UNAVAILABLE", error.strerror or str(error))
        except Exception as error:
            self._lose(now, "INTERNAL", repr(error))

    def _load_stubs(self) -> bool:
        if self._stubs is None:
            try:
                with forking.lock:
                    from stepwarden_proto.v1 import agent_pb2
                self._stubs = agent_pb2
            except Exception as error:
                log.once("import", _import_line(error))
                self.over = True
        return not self.over

    def _new_call(self) -> Call:
        token = ((TOKEN_METADATA_KEY, self._settings.token),)
        return Call(METHOD, self._target.authority, token, tls=self._secure is not None)

    def _dial_up(self) -> None:
        self._dial = Dial(self._target, self._wake, self._secure)
        self._call = self._new_call()

    def _move(self, dial: Dial, now: float, events: int) -> None:
        if events & select.POLLNVAL:
            dial.forget()
            raise _LostError("UNAVAILABLE", "the connection was closed by this very process")
        late = self._deadline is not None and now >= self._deadline
        if not self._up:
            if self._deadline is None or dial.looking:
                self._deadline = now + CONNECT_SECONDS
            self._up = dial.advance()
            if self._up and self._secure is not None:
                self._read(dial, now)
        elif dial.socket is not None and (late or events & _READABLE):
            # Late or not: what has arrived by now counts.
            self._read(dial, now)
        if self._deadline is not None and now >= self._deadline:
            raise _LostError("no answer", self._patience())
        if self._up and dial.socket is not None and not self.over:
            self._send_due(now)
            dial.send(self._call.out)

    def _read(self, dial: Dial, now: float) -> None:
        data = dial.receive()
        if data is None:
            return
        if not data:
            raise self._closed()
        self._heard_at = now
        for message in self._call.receive(data):
            self._acknowledged(message)
        if self._call.end is not None and not self.over:
            status, text = self._call.end
            raise _LostError(status, text or "the supervisor ended the stream")
        if self._begun and self._sent is None:
            self._deadline = None

    def _acknowledged(self, message: bytes) -> None:
        if self._sent is None or self._stubs.Ack.FromString(message).seq != self._sent:
            raise _LostError("INTERNAL", "an acknowledgement of something that was not sent")
        self._sent = None
        self._failures = 0
        self.connected = True
        if self._bye_sent:
            self.drop()

    def _send_due(self, now: float) -> None:
        if self._sent is not None or not self._call.ready:
            return
        if self._call.leaving and not self._ending:
            raise _LostError("UNAVAILABLE", "the supervisor leaves")
        if not self._begun:
            self._begun = True
            self._call.begin()
            self._send(ATTACH, now)
        elif self._due is not None and (now >= self._next_send or self._due == BYE):
            self._send(self._due, now)
        elif now >= self._heard_at + KEEPALIVE_SECONDS and self._deadline is None:
            self._call.ping()
            self._deadline = now + PING_SECONDS

    def _send(self, reason: int, now: float) -> None:
        if reason == self._due or self._due != BYE:
            self._due = None  # the message tells all of it
        beat = self._make(self._stubs, reason)
        self._call.send(beat.SerializeToString(), last=reason == BYE)
        self._sent = beat.seq
        self._bye_sent = reason == BYE
        self._deadline = now + MESSAGE_SECONDS
        self._next_send = now + MIN_GAP_SECONDS

    def _patience(self) -> str:
        if self._sent is not None:
            return f"nothing acknowledged within {MESSAGE_SECONDS:g} s"
        if self._begun:
            return f"a ping was not answered within {PING_SECONDS:g} s"
        return f"no greeting within {CONNECT_SECONDS:g} s"

    def _closed(self) -> _LostError:
        if self._call.ready or self._target.local:
            return _LostError("UNAVAILABLE", "the supervisor closed the connection")
        # gRPC tells nobody why it does not agree to TLS.
        why = "if it speaks TLS, STEPWARDEN_CA is needed here"
        if self._secure is not None:
            told = self._secure.cert
            why = f"it may not accept our certificate {told}"
            if not told:
                why = "it may want a certificate of ours (STEPWARDEN_CERT, STEPWARDEN_KEY)"
        return _LostError("TLS", f"the port closed the connection without a greeting; {why}")

    def _lose(self, now: float, status: str, text: str) -> None:
        self._hang_up()
        if self._ending:
            self.over = True
            return
        target = self._settings.target
        log.once(
            f"link {status}",
            f"no supervisor at {target}: {status}: {text}; the worker runs on, retrying",
        )
        pause = min(LAST_RETRY_SECONDS, FIRST_RETRY_SECONDS * 2.0 ** min(self._failures, 8))
        if status in _REFUSALS:
            pause = LAST_RETRY_SECONDS
        self._failures += 1
        # Spread, so that the ranks of a host do not all come at the same instant.
        self._next_try = now + pause * self._draw.uniform(0.8, 1.0)

    def _hang_up(self) -> None:
        self.connected = self._up = self._begun = False
        self._sent = self._deadline = None
        if self._dial is not None:
            self._dial.close()
            self._dial = None


def _secure(settings: Settings, target: Target) -> TlsSettings | None:
    """What TLS needs; None: none is spoken. Raises ValueError where that cannot be meant."""
    if settings.tls is None or target.local:
        return None
    if not settings.tls.ca:
        raise ValueError("TLS needs STEPWARDEN_CA, the file of the authorities to be believed")
    return settings.tls


def _import_line(error: Exception) -> str:
    cause = " ".join(str(error).split())
    return (
        f"no heartbeats from this process: the installed protobuf {_version('protobuf')} cannot run"
        f" the messages of stepwarden (it needs protobuf >= 5.26.1): {cause}"
    )


def _version(distribution: str) -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"
