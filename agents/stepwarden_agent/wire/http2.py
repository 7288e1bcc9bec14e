"""One HTTP/2 connection (RFC 9113) with one stream, as its client sees it.

Bytes in, events out; what has to be sent gathers in `out`. No socket, no clock, and no exception:
what a peer does wrong, and its end of the connection, is the text in `broken`.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from stepwarden_agent.wire import frames, hpack
from stepwarden_agent.wire.frames import Frame, FrameReader, ProtocolError, make_frame, number
from stepwarden_agent.wire.hpack import Header

STREAM: Final = 1
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MAX_HEADER_BLOCK_BYTES: Final = 16_384
MAX_CONTINUATIONS: Final = 16
MAX_PENDING_BYTES: Final = 256 * 1024
"""A peer that asks for answers and does not read them is given up at this."""

DEFAULT_WINDOW: Final = 65_535

_TABLE_SIZE, _PUSH, _STREAMS, _WINDOW, _FRAME_SIZE, _HEADER_LIST = range(1, 7)
_SETTING: Final = struct.Struct(">HL")
_OURS: Final = ((_TABLE_SIZE, 0), (_PUSH, 0), (_HEADER_LIST, hpack.MAX_HEADER_BYTES))


class Event(NamedTuple):
    """Something for the stream: headers (None: none), data, and whether the peer is done."""

    headers: list[Header] | None
    data: bytes
    last: bool


class Connection:
    """A connection whose preface is ready to be sent.

    `ready`: the peer has said that it speaks HTTP/2. `leaving`: it wants no new streams.
    """

    def __init__(self) -> None:
        settings = b"".join(_SETTING.pack(*pair) for pair in _OURS)
        self.out = bytearray(PREFACE + make_frame(frames.SETTINGS, payload=settings))
        self.ready = False
        self.leaving = False
        self.broken = ""
        self._reader = FrameReader()
        self._block: bytearray | None = None  # of a header block that goes on
        self._block_parts = 0
        self._block_last = False
        self._unsent = b""
        self._last = False
        self._send_window = DEFAULT_WINDOW
        self._stream_window = DEFAULT_WINDOW
        self._peer_initial_window = DEFAULT_WINDOW
        self._peer_frame_bytes = frames.MAX_FRAME_BYTES
        self._unread_window = DEFAULT_WINDOW  # what the peer may still send, of either window

    def open(self, block: bytes) -> None:
        """Open the stream with a header block of at most `frames.MAX_FRAME_BYTES`."""
        self.out += make_frame(frames.HEADERS, frames.END_HEADERS, STREAM, block)

    def send(self, data: bytes, last: bool = False) -> None:
        """Send data on the stream as the peer's windows allow; `last`: and nothing after it."""
        self._unsent += data
        self._last = last
        self._send_unsent()

    def ping(self) -> None:
        """Ask for a sign of life; whatever comes is one."""
        self.out += make_frame(frames.PING, payload=b"alive?\0\0")

    def leave(self) -> None:
        """Tell the peer that this connection is at its end."""
        self.out += make_frame(frames.GOAWAY, payload=bytes(8))

    def receive(self, data: bytes) -> list[Event]:
        """Take in bytes of any number; what came before a mistake of the peer's still counts."""
        events: list[Event] = []
        try:
            self._reader.feed(data)
            while not self.broken and (frame := self._reader.take()) is not None:
                event = self._take(frame)
                if event is not None:
                    events.append(event)
            if len(self.out) > MAX_PENDING_BYTES:
                raise ProtocolError("a peer that asks and does not listen")
        except ProtocolError as error:
            self.broken = str(error)
        return events

    def _take(self, frame: Frame) -> Event | None:
        if not self.ready and (frame.kind != frames.SETTINGS or frame.flags & frames.ACK):
            raise ProtocolError("something that is not HTTP/2")
        if (self._block is not None) != (frame.kind == frames.CONTINUATION):
            raise ProtocolError("a header block that is interrupted")
        if frame.kind in _OF_STREAM and frame.stream != STREAM:
            raise ProtocolError("a frame on a stream that is not there")
        if frame.kind in _OF_CONNECTION and frame.stream != 0:
            raise ProtocolError("a frame of the connection on a stream")
        handler = _HANDLERS.get(frame.kind)
        return None if handler is None else handler(self, frame)

    def _data(self, frame: Frame) -> Event:
        size = len(frame.payload)
        if size > self._unread_window:
            raise ProtocolError("more data than was allowed")
        self._unread_window -= size
        if self._unread_window < DEFAULT_WINDOW // 2:
            grown = (DEFAULT_WINDOW - self._unread_window).to_bytes(4, "big")
            for stream in (0, STREAM):
                self.out += make_frame(frames.WINDOW_UPDATE, 0, stream, grown)
            self._unread_window = DEFAULT_WINDOW
        return Event(None, frames.content(frame), bool(frame.flags & frames.END_STREAM))

    def _headers(self, frame: Frame) -> Event | None:
        self._block = bytearray(frames.content(frame))
        self._block_parts = 0
        self._block_last = bool(frame.flags & frames.END_STREAM)
        return self._end_of_block(frame)

    def _continuation(self, frame: Frame) -> Event | None:
        assert self._block is not None
        self._block += frame.payload
        self._block_parts += 1
        if self._block_parts > MAX_CONTINUATIONS or len(self._block) > MAX_HEADER_BLOCK_BYTES:
            raise ProtocolError("too many headers")
        return self._end_of_block(frame)

    def _end_of_block(self, frame: Frame) -> Event | None:
        if self._block is None or not frame.flags & frames.END_HEADERS:
            return None
        block, self._block = bytes(self._block), None
        return Event(hpack.decode(block), b"", self._block_last)

    def _settings(self, frame: Frame) -> None:
        size = len(frame.payload)
        if frame.flags & frames.ACK:
            if size:
                raise ProtocolError("a malformed answer to our settings")
            return
        if size % _SETTING.size:
            raise ProtocolError("settings that are cut off")
        for kind, value in _SETTING.iter_unpack(frame.payload):
            self._setting(kind, value)
        self.ready = True
        self.out += make_frame(frames.SETTINGS, frames.ACK)
        self._send_unsent()

    def _setting(self, kind: int, value: int) -> None:
        if kind == _WINDOW:
            self._stream_window = _in_range(
                self._stream_window + value - self._peer_initial_window, -frames.MAX_NUMBER
            )
            self._peer_initial_window = _in_range(value)
        elif kind == _FRAME_SIZE:
            if not frames.MAX_FRAME_BYTES <= value < 2**24:
                raise ProtocolError("a setting out of range")
            self._peer_frame_bytes = value

    def _window_update(self, frame: Frame) -> None:
        grown = number(frame.payload) if len(frame.payload) == 4 else 0
        if not grown:
            raise ProtocolError("a malformed window")
        if frame.stream == 0:
            self._send_window = _in_range(self._send_window + grown)
        elif frame.stream == STREAM:
            self._stream_window = _in_range(self._stream_window + grown, -frames.MAX_NUMBER)
        else:
            raise ProtocolError("a frame on a stream that is not there")
        self._send_unsent()

    def _ping(self, frame: Frame) -> None:
        if len(frame.payload) != 8:
            raise ProtocolError("a malformed ping")
        if not frame.flags & frames.ACK:
            self.out += make_frame(frames.PING, frames.ACK, payload=frame.payload)

    def _goaway(self, frame: Frame) -> None:
        if len(frame.payload) < 8:
            raise ProtocolError("a malformed goodbye")
        self.leaving = True
        if number(frame.payload) < STREAM:
            self.broken = "the supervisor closes the connection" + _why(frame.payload[4:])

    def _rst_stream(self, frame: Frame) -> None:
        if len(frame.payload) != 4:
            raise ProtocolError("a malformed reset")
        self.broken = "the supervisor closed the stream" + _why(frame.payload)

    def _push(self, _frame: Frame) -> None:
        raise ProtocolError("a push that was forbidden")

    def _send_unsent(self) -> None:
        while self._unsent:
            room = min(self._send_window, self._stream_window, self._peer_frame_bytes)
            if room <= 0:
                return
            part, self._unsent = self._unsent[:room], self._unsent[room:]
            self._send_window -= len(part)
            self._stream_window -= len(part)
            flags = frames.END_STREAM if self._last and not self._unsent else 0
            self.out += make_frame(frames.DATA, flags, STREAM, part)


_OF_STREAM = {frames.DATA, frames.HEADERS, frames.CONTINUATION, frames.RST_STREAM}
_OF_CONNECTION = {frames.SETTINGS, frames.PING, frames.GOAWAY}
_HANDLERS = {
    frames.DATA: Connection._data,
    frames.HEADERS: Connection._headers,
    frames.RST_STREAM: Connection._rst_stream,
    frames.SETTINGS: Connection._settings,
    frames.PUSH_PROMISE: Connection._push,
    frames.PING: Connection._ping,
    frames.GOAWAY: Connection._goaway,
    frames.WINDOW_UPDATE: Connection._window_update,
    frames.CONTINUATION: Connection._continuation,
}


def _in_range(window: int, lowest: int = 0) -> int:
    if not lowest <= window <= frames.MAX_NUMBER:
        raise ProtocolError("a window out of range")
    return window


def _why(payload: bytes) -> str:
    """The error code, and what a peer adds to it for people; "" where there is no error."""
    code = number(payload)
    text = "".join(letter for letter in payload[4:204].decode("ascii", "ignore") if letter >= " ")
    return f" (HTTP/2 error {code}{': ' + text if text else ''})" if code else ""
