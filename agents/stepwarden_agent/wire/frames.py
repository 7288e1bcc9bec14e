"""Frames of HTTP/2 (RFC 9113): cut out of a stream of bytes, and made."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

(
    DATA,
    HEADERS,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    PUSH_PROMISE,
    PING,
    GOAWAY,
    WINDOW_UPDATE,
    CONTINUATION,
) = range(10)

END_STREAM: Final = 0x01
ACK: Final = 0x01
END_HEADERS: Final = 0x04
PADDED: Final = 0x08
WITH_PRIORITY: Final = 0x20

MAX_FRAME_BYTES: Final = 16_384
"""The largest payload that we take: the smallest limit that the standard allows."""

MAX_NUMBER: Final = 2**31 - 1
_HEAD: Final = struct.Struct(">HBBBL")


class ProtocolError(Exception):
    """The peer sent what HTTP/2 or gRPC forbids, or more than we take."""


class Frame(NamedTuple):
    """One frame; `kind` may be one that nobody knows."""

    kind: int
    flags: int
    stream: int
    payload: bytes


def make_frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """The bytes of a frame."""
    size = len(payload)
    return _HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def number(payload: bytes, place: int = 0) -> int:
    """The 31-bit number in four bytes of `payload`."""
    return int.from_bytes(payload[place : place + 4], "big") & MAX_NUMBER


class FrameReader:
    """Cuts frames out of chunks of any size; keeps at most one frame and the last chunk."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Take in what came from the peer."""
        self._buffer += data

    def take(self) -> Frame | None:
        """The next whole frame; None: more bytes are needed. ProtocolError: it is too large."""
        buffer = self._buffer
        if len(buffer) < _HEAD.size:
            return None
        high, low, kind, flags, stream = _HEAD.unpack_from(buffer)
        size = high << 8 | low
        if size > MAX_FRAME_BYTES:
            raise ProtocolError("a frame larger than was agreed on")
        end = _HEAD.size + size
        if len(buffer) < end:
            return None
        payload = bytes(buffer[_HEAD.size : end])
        del buffer[:end]
        return Frame(kind, flags, stream & MAX_NUMBER, payload)


def content(frame: Frame) -> bytes:
    """The payload of DATA or HEADERS without padding and priority."""
    payload = frame.payload
    padding = 0
    if frame.flags & PADDED:
        if not payload:
            raise ProtocolError("a padded frame that is empty")
        padding, payload = payload[0], payload[1:]
    if frame.kind == HEADERS and frame.flags & WITH_PRIORITY:
        if len(payload) < 5:
            raise ProtocolError("a frame that is cut off")
        payload = payload[5:]
    if padding > len(payload):
        raise ProtocolError("more padding than there is frame")
    return payload[: len(payload) - padding]
