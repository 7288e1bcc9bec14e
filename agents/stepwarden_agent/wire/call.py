"""One bidirectional gRPC call on one connection: messages out, messages in, and how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote

from stepwarden_agent.wire import frames, hpack
from stepwarden_agent.wire.hpack import Header
from stepwarden_agent.wire.http2 import Connection

MAX_MESSAGE_BYTES: Final = 4096
"""Of one message of the peer's. An Ack has a dozen bytes."""

MAX_QUIET_BYTES: Final = 256 * 1024
"""What a peer may send without one of its messages in it."""

MAX_TEXT: Final = 300


class Limits(NamedTuple):
    """What a caller takes: bytes of one message, and characters of the text of a status."""

    message_bytes: int = MAX_MESSAGE_BYTES
    text: int = MAX_TEXT


OF_THE_AGENT: Final = Limits()

_STATUS_TEXT = """
    OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS
    PERMISSION_DENIED RESOURCE_EXHAUSTED FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED
    INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED
"""
_STATUS_NAMES: Final = _STATUS_TEXT.split()


class End(NamedTuple):
    """How a call ended: the name of a gRPC status, and a text for people."""

    status: str
    text: str


class Call:
    """A call of `path`; begin it when the connection is `ready`.

    `metadata` is sent with it, its values kept secret. `tls`: the connection is. Raises ValueError
    where they cannot be sent. `trailers` is what the peer sent with the end of the call.
    """

    def __init__(
        self,
        path: str,
        authority: str,
        metadata: Sequence[Header],
        limits: Limits = OF_THE_AGENT,
        *,
        tls: bool = False,
    ) -> None:
        self._connection = Connection()
        self._block = _header_block(path, authority, metadata, "https" if tls else "http")
        self._buffer = bytearray()
        self._quiet_bytes = 0
        self._answered = False
        self._limits = limits
        self._most_quiet = max(MAX_QUIET_BYTES, 2 * limits.message_bytes)
        self.end: End | None = None
        self.trailers: dict[str, str] = {}

    @property
    def ready(self) -> bool:
        """The peer speaks HTTP/2."""
        return self._connection.ready

    @property
    def leaving(self) -> bool:
        """The peer will end this connection."""
        return self._connection.leaving

    @property
    def out(self) -> bytearray:
        """What has to be sent; take away from its front what was."""
        return self._connection.out

    def ping(self) -> None:
        """Ask for a sign of life."""
        self._connection.ping()

    def leave(self) -> None:
        """Tell the peer that the connection is at its end."""
        self._connection.leave()

    def begin(self) -> None:
        """Open the stream."""
        self._connection.open(self._block)

    def send(self, message: bytes, last: bool = False) -> None:
        """Send one message; `last`: and nothing after it."""
        self._connection.send(b"\0" + len(message).to_bytes(4, "big") + message, last)

    def receive(self, data: bytes) -> list[bytes]:
        """The messages that are whole now. `end` says how the call ended, if it did."""
        self._quiet_bytes += len(data)
        messages: list[bytes] = []
        for event in self._connection.receive(data):
            if event.headers is not None:
                self._take_headers(event.headers, event.last)
            self._buffer += event.data
            self._cut_messages(messages)
            if event.last:
                self._finish("UNKNOWN", "the call ended without a status")
            if self.end is not None:
                return messages
        if self._connection.broken:
            self._finish("UNAVAILABLE", self._connection.broken)
        elif self._quiet_bytes > self._most_quiet:
            self._finish("RESOURCE_EXHAUSTED", "the peer sends and sends and says nothing")
        return messages

    def _cut_messages(self, messages: list[bytes]) -> None:
        buffer = self._buffer
        while len(buffer) >= 5 and self.end is None:
            size = int.from_bytes(buffer[1:5], "big")
            if buffer[0] or size > self._limits.message_bytes or not self._answered:
                self._finish("INTERNAL", "something that is no message of gRPC")
            elif len(buffer) < 5 + size:
                return
            else:
                messages.append(bytes(buffer[5 : 5 + size]))
                del buffer[: 5 + size]
                self._quiet_bytes = 0

    def _take_headers(self, headers: list[Header], last: bool) -> None:
        found = dict(headers)
        if "grpc-status" in found:
            self.trailers = found
            self._finish(*_read_status(found, self._limits.text))
        elif last or self._answered or not found.get(":status", "").startswith("1"):
            self._check_answer(found)

    def _check_answer(self, found: dict[str, str]) -> None:
        status = found.get(":status", "")
        if self._answered:
            self._finish("INTERNAL", "headers in the middle of a call")
        elif status != "200":
            self._finish("UNAVAILABLE", f"HTTP status {status[:3] if status.isalnum() else 'none'}")
        elif not found.get("content-type", "").startswith("application/grpc"):
            self._finish("UNAVAILABLE", "something that speaks HTTP/2 but not gRPC")
        self._answered = True

    def _finish(self, status: str, text: str) -> None:
        if self.end is None:
            self.end = End(status, text)


def _header_block(path: str, authority: str, metadata: Sequence[Header], scheme: str) -> bytes:
    plain = [
        (":method", "POST"),
        (":scheme", scheme),
        (":path", path),
        (":authority", authority),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        ("user-agent", "stepwarden-agent"),
    ]
    for _, value in metadata:
        if not (value.isascii() and value.isprintable()):
            raise ValueError("a value of the metadata is not printable ASCII")
    block = hpack.encode(plain) + hpack.encode(metadata, secret=True)
    if len(block) > frames.MAX_FRAME_BYTES:
        raise ValueError("the metadata is too long")
    return block


def _read_status(found: dict[str, str], most: int) -> tuple[str, str]:
    code = found["grpc-status"]
    known = code.isascii() and code.isdigit() and len(code) < 3 and int(code) < len(_STATUS_NAMES)
    text = unquote(found.get("grpc-message", "")[: 3 * most])
    # A text for one line of a log, whatever came.
    text = "".join(letter if letter.isprintable() else " " for letter in text)[:most]
    return (_STATUS_NAMES[int(code)] if known else "UNKNOWN"), text
