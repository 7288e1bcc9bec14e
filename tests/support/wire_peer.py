"""The other end of the agent's connection: frames as a server sends them, and `Link`s to try."""

from __future__ import annotations

import select
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from stepwarden_agent.link import Link
from stepwarden_agent.message import BeatMaker
from stepwarden_agent.page_file import private_page
from stepwarden_agent.settings import Settings, TlsSettings
from stepwarden_agent.wire import frames, hpack
from stepwarden_agent.wire.frames import Frame, FrameReader, make_frame
from stepwarden_agent.wire.http2 import PREFACE
from stepwarden_proto.v1 import agent_pb2

SETTINGS = make_frame(frames.SETTINGS)
ANSWER = [(":status", "200"), ("content-type", "application/grpc")]


def settings(*pairs: tuple[int, int]) -> bytes:
    """A SETTINGS frame."""
    return make_frame(frames.SETTINGS, payload=b"".join(struct.pack(">HL", *p) for p in pairs))


def headers(*pairs: tuple[str, str], last: bool = False) -> bytes:
    """A HEADERS frame with the pairs; without any, those that open an answer."""
    flags = frames.END_HEADERS | (frames.END_STREAM if last else 0)
    return make_frame(frames.HEADERS, flags, 1, hpack.encode(pairs or ANSWER))


def message(body: bytes) -> bytes:
    """A DATA frame with one message."""
    return make_frame(frames.DATA, 0, 1, b"\0" + len(body).to_bytes(4, "big") + body)


def cut(data: bytes) -> list[Frame]:
    """The frames that a client sent, without its preface."""
    reader = FrameReader()
    reader.feed(data.removeprefix(PREFACE))
    found = []
    while (frame := reader.take()) is not None:
        found.append(frame)
    return found


def new_link(
    target: str, token: str = "token", tls: TlsSettings | None = None, rank: str = "0"
) -> Link:
    """A link that nobody drives yet."""
    told = Settings("w", "w-1", target, token, "", tls=tls)
    maker = BeatMaker(told, rank, "")
    words = private_page("idle").words

    def make(pb: Any, reason: int) -> agent_pb2.Beat:
        return maker.make(pb, reason, words, None, "")

    return Link(told, make)


def drive(link: Link, until: Callable[[], bool], seconds: float = 20.0) -> None:
    """Turn it as the beat thread does. Raises AssertionError where `until` does not come true."""
    end = time.monotonic() + seconds
    events = 0
    while not until():
        now = time.monotonic()
        assert now < end, "nothing came of it"
        link.turn(now, events)
        events = wait(link, 0.05)


def wait(link: Link, seconds: float) -> int:
    """What poll says of the connection within `seconds`."""
    descriptor, wanted = link.interest()
    poll = select.poll()
    if descriptor >= 0:
        poll.register(descriptor, wanted)
    return sum(found for _, found in poll.poll(seconds * 1000))


class ScriptedPeer:
    """Listens on a unix socket and sends what a test says, frame by frame."""

    def __init__(self, folder: Path) -> None:
        self.target = f"unix:{folder}/peer"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{folder}/peer")
        self._listener.listen(8)
        self._listener.settimeout(20)
        self._connection: socket.socket | None = None
        self._reader = FrameReader()
        self._preface = b""

    def accept(self) -> None:
        """Take the next connection."""
        self.hang_up()
        self._connection, _ = self._listener.accept()
        self._connection.settimeout(20)
        self._reader = FrameReader()
        self._preface = PREFACE

    def send(self, *parts: bytes) -> None:
        """Send bytes."""
        assert self._connection is not None
        self._connection.sendall(b"".join(parts))

    def frame(self, kind: int) -> Frame:
        """The next frame of this kind; others are left out. Waits for it."""
        assert self._connection is not None
        while True:
            found = self._reader.take()
            if found is not None and found.kind == kind:
                return found
            if found is None:
                data = self._connection.recv(65536)
                assert data, "the client hung up"
                if self._preface:
                    assert data.startswith(self._preface)
                    data, self._preface = data.removeprefix(self._preface), b""
                self._reader.feed(data)

    def beat(self) -> agent_pb2.Beat:
        """The next message, which must come in one frame."""
        return agent_pb2.Beat.FromString(self.frame(frames.DATA).payload[5:])

    def hang_up(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.hang_up()
        self._listener.close()


def ack(beat: agent_pb2.Beat) -> bytes:
    """The frame that acknowledges a message."""
    return message(agent_pb2.Ack(seq=beat.seq).SerializeToString())
