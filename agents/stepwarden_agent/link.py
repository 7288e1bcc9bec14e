"""The stream to the supervisor, in a thread of its own that may wait without harm to anybody.

One message is in flight at most: the next one is made when the last was acknowledged, from what
is true by then, so the newest always wins. gRPC is imported here, in that thread, and nowhere
else; channel and call live in locals of that thread, so that a forked child never destroys them.
"""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from stepwarden_proto.channel import CLIENT_OPTIONS
from stepwarden_proto.page import TOKEN_METADATA_KEY

from stepwarden_agent import forking, log
from stepwarden_agent.settings import Settings

TICK, ATTACH, PHASE, BUSY, IDLE, LEASE, BYE = range(7)
"""Codes of BeatReason, repeated here because the stubs are imported late."""

# What is told when several things happened since the last message: the rightmost.
_RANKING = (TICK, BUSY, IDLE, LEASE, PHASE, ATTACH, BYE)

MESSAGE_SECONDS = 5.0
"""A message that is not acknowledged by then is given up, and the stream with it."""

RETRY_SECONDS = 0.4
"""Between two attempts; with the channel's own backoff still well below 3 s after an outage."""

REFUSED_RETRY_SECONDS = 2.0
_REFUSALS = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED", "INVALID_ARGUMENT"})

OLDEST_GRPC = (1, 63, 2)

MakeMessage = Callable[[Any, int], Any]
"""Makes the message for a reason; the first argument is the module of the stubs."""


def load_grpc() -> tuple[Any, Any, Any]:
    """The modules grpc, agent_pb2 and agent_pb2_grpc."""
    with forking.import_lock:
        import grpc

        # Asked first, because the stubs would only warn, on the engine's stderr.
        numbers = tuple(int(part) for part in re.findall(r"\d+", grpc.__version__)[:3])
        if numbers < OLDEST_GRPC:
            raise ImportError(f"grpc {grpc.__version__} is too old")
        from stepwarden_proto.v1 import agent_pb2, agent_pb2_grpc
    return grpc, agent_pb2, agent_pb2_grpc


class Link:
    """Sends messages to `settings.target` and keeps at it for as long as the process lives."""

    def __init__(self, settings: Settings, make: MakeMessage) -> None:
        self._settings = settings
        self._make = make
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._due: int | None = None
        self._ending = False
        self._connected = False
        self._cancel: Callable[[], object] | None = None
        self._sent_at: float | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stepwarden-link", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def offer(self, reason: int) -> None:
        """Something happened; a message goes out as soon as the last one is acknowledged."""
        due = self._due
        if due is None or _RANKING.index(reason) > _RANKING.index(due):
            self._due = reason
        self._wake.put(None)

    def give_up_overdue(self) -> None:
        """Cancel the stream where the message in flight has waited too long."""
        cancel, sent_at = self._cancel, self._sent_at
        if cancel is None or sent_at is None:
            return
        if time.monotonic() - sent_at > MESSAGE_SECONDS:
            cancel()

    def finish(self, seconds: float) -> None:
        """Say bye where somebody listens, and end. Waits for at most `seconds`."""
        self._ending = True
        self.offer(BYE)
        if self._connected:
            self._done.wait(seconds)
        self.drop()

    def drop(self) -> None:
        """End without a bye."""
        self._ending = True
        self._wake.put(None)
        cancel = self._cancel
        if cancel is not None:
            cancel()

    def _run(self) -> None:
        try:
            grpc, pb, stubs = load_grpc()
        except Exception as error:
            log.once("import", _import_line(error))
            return
        try:
            while not self._ending:
                # One channel for one stream: older grpcio (1.63 and 1.66 measured) lets the
                # backoff of a channel that has failed grow far beyond the cap it was given.
                channel = grpc.insecure_channel(self._settings.target, options=CLIENT_OPTIONS)
                pause = self._talk(stubs.AgentServiceStub(channel), pb)
                if self._ending:
                    self._done.set()
                channel.close()
                if not self._ending:
                    time.sleep(pause)
        except Exception as error:
            log.once("link", f"the link to {self._settings.target} ended: {error!r}")

    def _talk(self, stub: Any, pb: Any) -> float:
        """One stream, from attach to its end; returns the seconds to wait before the next."""
        messages: queue.SimpleQueue[Any] = queue.SimpleQueue()
        cancel: Callable[[], object] | None = None
        try:
            token = ((TOKEN_METADATA_KEY, self._settings.token),)
            call = stub.Attach(iter(messages.get, None), metadata=token)
            self._cancel = cancel = call.cancel
            call.add_callback(lambda: self._wake.put(None))
            self._exchange(call, messages, pb)
            return RETRY_SECONDS
        except Exception as error:
            return self._failed(error)
        finally:
            self._connected = False
            self._sent_at = self._cancel = None
            if cancel is not None:
                cancel()
            # Frees gRPC's own thread, which waits for the next message.
            messages.put(None)

    def _exchange(self, call: Any, messages: queue.SimpleQueue[Any], pb: Any) -> None:
        reason: int | None = ATTACH
        while reason is not None:
            messages.put(self._make(pb, reason))
            self._sent_at = time.monotonic()
            if next(call, None) is None:
                return
            self._sent_at = None
            self._connected = True
            reason = None if reason == BYE else self._next_reason(call)

    def _next_reason(self, call: Any) -> int | None:
        """Waits until something is due; None where the stream is over."""
        while self._due is None:
            if not call.is_active():
                return None
            self._wake.get()
        reason, self._due = self._due, None
        return reason

    def _failed(self, error: Exception) -> float:
        code = getattr(error, "code", None)
        name = code().name if callable(code) else type(error).__name__
        if name == "CANCELLED" and not self._ending:
            name, text = "no answer", f"nothing acknowledged within {MESSAGE_SECONDS:g} s"
        else:
            details = getattr(error, "details", None)
            text = str(details() if callable(details) else error)
        if not self._ending:
            target = self._settings.target
            log.once(
                f"link {name}",
                f"no supervisor at {target}: {name}: {text}; the worker runs on, retrying",
            )
        return REFUSED_RETRY_SECONDS if name in _REFUSALS else RETRY_SECONDS


def _import_line(error: Exception) -> str:
    versions = ", ".join(f"{name} {_version(name)}" for name in ("protobuf", "grpcio"))
    cause = " ".join(str(error).split())
    return (
        f"no heartbeats from this process: the installed {versions} cannot run the messages of"
        f" stepwarden (it needs protobuf >= 5.26.1 and grpcio >= 1.63.2): {cause}"
    )


def _version(distribution: str) -> str:
    import importlib.metadata

    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"
