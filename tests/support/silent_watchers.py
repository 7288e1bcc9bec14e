"""Clients that open Watch streams and never take what comes: their window is closed."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Self

from stepwarden_agent.wire import frames, hpack
from stepwarden_agent.wire.frames import make_frame
from stepwarden_agent.wire.http2 import PREFACE

from support.wire_peer import settings

INITIAL_WINDOW_SIZE = 4


class SilentWatchers:
    """`count` streams of one connection to a port of this host, open until the block ends."""

    def __init__(self, port: int, service: str, count: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=20)
        self._socket.sendall(PREFACE + settings((INITIAL_WINDOW_SIZE, 0)))
        name = service.encode()
        asked = bytes([0x0A, len(name)]) + name
        body = b"\0" + len(asked).to_bytes(4, "big") + asked
        for stream in range(1, 2 * count, 2):
            self._socket.sendall(_headers(stream) + make_frame(frames.DATA, 1, stream, body))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._socket.close()


def _headers(stream: int) -> bytes:
    block = hpack.encode(
        [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", "/grpc.health.v1.Health/Watch"),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ]
    )
    return make_frame(frames.HEADERS, frames.END_HEADERS, stream, block)
