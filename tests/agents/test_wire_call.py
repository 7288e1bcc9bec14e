"""One call on one connection: flow control, what a server may send, what it may not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden_agent.wire import call as call_module
from stepwarden_agent.wire import frames, hpack, http2
from stepwarden_agent.wire.call import Call, End
from stepwarden_agent.wire.frames import make_frame
from support.wire_peer import SETTINGS, cut, headers, message, settings

GOAWAY = make_frame(frames.GOAWAY, payload=bytes(8))
DONE = headers(("grpc-status", "0"), last=True)


def new_call() -> Call:
    return Call("/service/Method", "localhost", [("token", "secret")])


def open_call(greeting: bytes = SETTINGS) -> Call:
    """A call that is begun, with nothing left to be sent."""
    call = new_call()
    assert call.receive(greeting) == []
    assert call.ready
    call.begin()
    call.out.clear()
    return call


def test_the_opening_says_what_we_take() -> None:
    call = new_call()
    assert call.out.startswith(http2.PREFACE)
    assert not call.ready
    call.receive(SETTINGS)
    call.begin()
    ours, answer, opening = cut(bytes(call.out))
    assert ours.payload.startswith(b"\0\1\0\0\0\0\0\2\0\0\0\0"), "no table, no push"
    assert (answer.kind, answer.flags) == (frames.SETTINGS, frames.ACK)
    assert (opening.flags, opening.stream) == (frames.END_HEADERS, 1)
    said = dict(hpack.decode(opening.payload))
    assert said["te"] == "trailers"
    assert said["content-type"] == "application/grpc"
    assert (said[":path"], said[":authority"]) == ("/service/Method", "localhost")
    assert said["token"] == "secret"
    assert b"\x10\x05token\x06secret" in opening.payload, "never to be indexed"


def test_messages_and_the_status_at_the_end() -> None:
    call = open_call()
    assert call.receive(headers() + message(b"one") + message(b"")) == [b"one", b""]
    assert call.end is None
    assert (
        call.receive(headers(("grpc-status", "16"), ("grpc-message", "no%0Aentry"), last=True))
        == []
    )
    assert call.end == End("UNAUTHENTICATED", "no entry")


@given(st.lists(st.binary(max_size=200), max_size=8), st.integers(1, 50))
def test_messages_come_out_however_they_are_cut(bodies: list[bytes], size: int) -> None:
    call = open_call()
    data = headers() + b"".join(message(body) for body in bodies) + DONE
    found = []
    for place in range(0, len(data), size):
        found += call.receive(data[place : place + size])
    assert found == bodies
    assert call.end == End("OK", "")


def test_a_message_may_come_in_many_padded_frames() -> None:
    call = open_call()
    call.receive(headers())
    for byte in b"\0\0\0\0\3abc":
        part = make_frame(frames.DATA, frames.PADDED, 1, bytes((2, byte, 0, 0)))
        found = call.receive(part)
    assert found == [b"abc"]


def test_headers_may_come_in_parts() -> None:
    call = open_call()
    block = hpack.encode([(":status", "200"), ("content-type", "application/grpc+proto")])
    parts = [
        make_frame(frames.HEADERS, 0, 1, block[:3]),
        make_frame(frames.CONTINUATION, 0, 1, block[3:9]),
    ]
    parts.append(make_frame(frames.CONTINUATION, frames.END_HEADERS, 1, block[9:]))
    assert call.receive(b"".join(parts) + message(b"x")) == [b"x"]
    assert call.end is None


def test_an_early_hint_is_passed_over() -> None:
    call = open_call()
    assert call.receive(headers((":status", "103")) + headers() + message(b"x")) == [b"x"]


def sent_data(call: Call) -> list[frames.Frame]:
    found = [frame for frame in cut(bytes(call.out)) if frame.kind == frames.DATA]
    call.out.clear()
    return found


def test_the_windows_of_the_peer_are_honoured() -> None:
    call = open_call(settings((4, 10)))
    call.send(b"x" * 20, last=True)
    (first,) = sent_data(call)
    assert (first.payload, first.flags) == (b"\0\0\0\0\x14xxxxx", 0)
    call.receive(make_frame(frames.WINDOW_UPDATE, 0, 0, (100).to_bytes(4, "big")))
    assert sent_data(call) == [], "the stream has a window of its own"
    call.receive(make_frame(frames.WINDOW_UPDATE, 0, 1, (5).to_bytes(4, "big")))
    assert [frame.payload for frame in sent_data(call)] == [b"xxxxx"]
    call.receive(settings((4, 30)))
    (rest,) = sent_data(call)
    assert (rest.payload, rest.flags) == (b"x" * 10, frames.END_STREAM)


def test_a_window_may_shrink_below_nothing() -> None:
    call = open_call(settings((4, 10)))
    call.send(b"x" * 20)
    call.receive(settings((4, 0)))
    call.receive(make_frame(frames.WINDOW_UPDATE, 0, 1, (10).to_bytes(4, "big")))
    assert len(sent_data(call)) == 1
    call.receive(make_frame(frames.WINDOW_UPDATE, 0, 1, (1).to_bytes(4, "big")))
    assert [frame.payload for frame in sent_data(call)] == [b"x"]


def test_the_window_of_the_connection_is_honoured() -> None:
    call = open_call(settings((4, 1_000_000)))
    for _ in range(9):
        call.send(b"x" * 10_000)
    assert sum(len(frame.payload) for frame in sent_data(call)) == http2.DEFAULT_WINDOW


@pytest.mark.parametrize(
    ("greeting", "size"), [(SETTINGS, 16_384), (settings((5, 20_000)), 20_000)]
)
def test_no_frame_is_larger_than_the_peer_takes(greeting: bytes, size: int) -> None:
    call = open_call(greeting)
    call.send(b"x" * 40_000)
    sizes = []
    while call.out:
        sizes.append(int.from_bytes(call.out[:3], "big"))
        del call.out[: 9 + sizes[-1]]
    assert sizes == [size, size, 40_005 - 2 * size]


def test_windows_are_given_back() -> None:
    call = open_call()
    call.receive(headers())
    for _ in range(100):
        assert call.receive(message(b"x" * 4000)) == [b"x" * 4000]
    assert call.end is None
    grown = [frame for frame in cut(bytes(call.out)) if frame.kind == frames.WINDOW_UPDATE]
    for stream in (0, 1):
        back = sum(frames.number(frame.payload) for frame in grown if frame.stream == stream)
        assert 400_000 - http2.DEFAULT_WINDOW // 2 < back <= 100 * 4005


def test_a_ping_is_answered() -> None:
    call = open_call()
    call.receive(make_frame(frames.PING, payload=b"12345678"))
    (answer,) = cut(bytes(call.out))
    assert (answer.kind, answer.flags, answer.payload) == (frames.PING, frames.ACK, b"12345678")
    call.out.clear()
    call.receive(make_frame(frames.PING, frames.ACK, payload=b"alive?\0\0"))
    assert not call.out


def test_a_peer_that_leaves_may_still_answer() -> None:
    call = open_call()
    last_stream = frames.MAX_NUMBER.to_bytes(4, "big") + bytes(4)
    call.receive(headers() + make_frame(frames.GOAWAY, payload=last_stream))
    assert call.leaving
    assert call.receive(message(b"x")) == [b"x"]
    assert call.end is None


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (GOAWAY, "closes the connection"),
        (
            make_frame(frames.GOAWAY, payload=bytes(4) + b"\0\0\0\x0btoo_many_pings"),
            "too_many_pings",
        ),
        (make_frame(frames.RST_STREAM, 0, 1, b"\0\0\0\x07"), "HTTP/2 error 7"),
        (make_frame(frames.DATA, frames.END_STREAM, 1), "without a status"),
        (headers((":status", "502"), ("content-type", "text/html")), "HTTP status 502"),
        (headers((":status", "200"), ("content-type", "text/html")), "not gRPC"),
        (headers(("content-type", "application/grpc")), "HTTP status none"),
        (headers() + headers(), "middle of a call"),
        (message(b"before the headers"), "no message of gRPC"),
        (headers() + make_frame(frames.DATA, 0, 1, b"\1\0\0\0\0"), "no message of gRPC"),
        (headers() + make_frame(frames.DATA, 0, 1, b"\0\xff\xff\xff\xff"), "no message of gRPC"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "larger than was agreed on"),
        (make_frame(frames.PUSH_PROMISE, frames.END_HEADERS, 1, b"\0\0\0\2"), "push"),
        (make_frame(frames.CONTINUATION, 0, 1), "interrupted"),
        (make_frame(frames.HEADERS, 0, 1) + SETTINGS, "interrupted"),
        (make_frame(frames.HEADERS, frames.END_HEADERS, 3), "not there"),
        (make_frame(frames.WINDOW_UPDATE, 0, 3, b"\0\0\0\1"), "not there"),
        (make_frame(frames.PING, 0, 1, bytes(8)), "of the connection"),
        (make_frame(frames.PING, payload=bytes(7)), "malformed ping"),
        (make_frame(frames.GOAWAY, payload=bytes(7)), "malformed goodbye"),
        (make_frame(frames.RST_STREAM, 0, 1, bytes(3)), "malformed reset"),
        (make_frame(frames.WINDOW_UPDATE, payload=bytes(4)), "malformed window"),
        (make_frame(frames.WINDOW_UPDATE, payload=b"\x7f\xff\xff\xff"), "window out of range"),
        (make_frame(frames.SETTINGS, payload=bytes(5)), "cut off"),
        (make_frame(frames.SETTINGS, frames.ACK, payload=bytes(6)), "malformed answer"),
        (settings((4, 2**31)), "out of range"),
        (settings((5, 1)), "out of range"),
        (make_frame(frames.HEADERS, frames.END_HEADERS, 1, b"\xbe"), "in no table"),
    ],
)
def test_what_ends_a_call(data: bytes, text: str) -> None:
    call = open_call()
    assert call.receive(data) == []
    assert call.end is not None
    assert text in call.end.text


def test_what_is_no_http2_at_all_is_told_apart() -> None:
    call = new_call()
    call.receive(make_frame(frames.PING, payload=bytes(8)))
    assert call.end == End("UNAVAILABLE", "something that is not HTTP/2")


@pytest.mark.parametrize(
    "flood",
    [
        make_frame(frames.PING, payload=bytes(8)),
        SETTINGS,
        make_frame(frames.DATA, 0, 1),
        make_frame(99, 0, 7, bytes(100)),
        headers((":status", "100")),
        make_frame(frames.HEADERS, 0, 1) + make_frame(frames.CONTINUATION, 0, 1, b"\0") * 20,
        make_frame(frames.DATA, frames.PADDED, 1, b"\xff" + bytes(255)),
    ],
)
def test_a_flood_ends_the_call_and_is_not_kept(flood: bytes) -> None:
    call = open_call()
    sent = 0
    while call.end is None:
        call.receive(flood)
        sent += len(flood)
        assert sent <= call_module.MAX_QUIET_BYTES + len(flood)
        assert len(call.out) <= http2.MAX_PENDING_BYTES
        assert len(call._buffer) < 100


@given(st.lists(st.binary(max_size=200), max_size=30), st.booleans())
def test_any_bytes_end_the_call_or_leave_it(chunks: list[bytes], greeted: bool) -> None:
    call = open_call() if greeted else new_call()
    for chunk in chunks:
        call.receive(chunk)


FRAME = st.builds(
    make_frame,
    st.integers(0, 10),
    st.sampled_from([0, 1, 4, 5, 8, 0x20, 0x2D, 0xFF]),
    st.sampled_from([0, 1, 1, 1, 2, 3]),
    st.one_of(
        st.binary(max_size=40),
        st.just(b"\0\0\0\0\2ab"),
        st.just(hpack.encode([(":status", "200"), ("content-type", "application/grpc")])),
        st.lists(st.integers(0, 2**32 - 1), max_size=3).map(
            lambda values: b"".join(b"\0\4" + value.to_bytes(4, "big") for value in values)
        ),
    ),
)


@given(st.lists(FRAME, max_size=30), st.integers(1, 100))
def test_any_frames_end_the_call_or_leave_it(sent: list[bytes], size: int) -> None:
    call = open_call()
    call.send(b"x" * 1000)
    data = b"".join(sent)
    for place in range(0, len(data), size):
        found = call.receive(data[place : place + size])
        assert all(len(body) <= call_module.MAX_MESSAGE_BYTES for body in found)
        assert len(call.out) <= http2.MAX_PENDING_BYTES + 2000


@pytest.mark.parametrize("token", ["a\nb", "é", "\0", "x" * 20_000])
def test_a_token_that_cannot_be_sent_is_refused_at_once(token: str) -> None:
    with pytest.raises(ValueError, match="metadata"):
        Call("/service/Method", "localhost", [("token", token)])


def test_a_status_message_is_one_short_line() -> None:
    call = open_call()
    text = "%E2%82%AC%1b%zz%ff" + "y" * 5000
    call.receive(
        headers((":status", "200"), ("grpc-status", "7"), ("grpc-message", text), last=True)
    )
    assert call.end is not None
    assert call.end.status == "PERMISSION_DENIED"
    assert call.end.text.startswith("\u20ac %zz")
    assert len(call.end.text) <= call_module.MAX_TEXT
    assert call.end.text.isprintable()


@pytest.mark.parametrize(("code", "name"), [("99", "UNKNOWN"), ("-1", "UNKNOWN"), ("x", "UNKNOWN")])
def test_an_unknown_status_is_unknown(code: str, name: str) -> None:
    call = open_call()
    call.receive(headers(("grpc-status", code), last=True))
    assert call.end is not None
    assert call.end.status == name
