"""Frames of HTTP/2 and compressed headers: any bytes in any chunks, and what the standards say."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden_agent.wire import frames, hpack
from stepwarden_agent.wire.frames import Frame, FrameReader, ProtocolError, content, make_frame

BYTES = st.binary(max_size=300)
FRAMES = st.builds(
    Frame,
    st.integers(0, 255),
    st.integers(0, 255),
    st.integers(0, frames.MAX_NUMBER),
    BYTES,
)
NAMES = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=40)
VALUES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=300)


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    """`data` cut at the given places, each modulo its length."""
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(places)]


@given(st.lists(FRAMES, max_size=8), st.lists(st.integers(0, 5000), max_size=20))
def test_frames_come_out_as_they_went_in_however_they_are_cut(
    sent: list[Frame], cuts: list[int]
) -> None:
    reader = FrameReader()
    found = []
    for chunk in chunks(b"".join(make_frame(*frame) for frame in sent), cuts):
        reader.feed(chunk)
        while (frame := reader.take()) is not None:
            found.append(frame)
    assert found == sent


@given(st.lists(BYTES, max_size=20))
def test_any_bytes_are_frames_or_one_error_and_never_pile_up(data: list[bytes]) -> None:
    reader = FrameReader()
    try:
        for chunk in data:
            reader.feed(chunk)
            while (frame := reader.take()) is not None:
                assert len(frame.payload) <= frames.MAX_FRAME_BYTES
            assert len(reader._buffer) < frames.MAX_FRAME_BYTES + 9
    except ProtocolError:
        return


@given(st.integers(0, 255), st.booleans(), BYTES)
def test_padding_and_priority_are_cut_off(padding: int, priority: bool, body: bytes) -> None:
    flags = frames.PADDED | (frames.WITH_PRIORITY if priority else 0)
    payload = bytes((padding,)) + bytes(5 if priority else 0) + body + bytes(padding)
    assert content(Frame(frames.HEADERS, flags, 1, payload)) == body


@pytest.mark.parametrize(
    ("flags", "payload"),
    [
        (frames.PADDED, b""),
        (frames.PADDED, b"\x05abc"),
        (frames.WITH_PRIORITY, b"abc"),
        (frames.PADDED | frames.WITH_PRIORITY, b"\x01abcde"),
    ],
)
def test_padding_that_does_not_fit_is_an_error(flags: int, payload: bytes) -> None:
    with pytest.raises(ProtocolError):
        content(Frame(frames.HEADERS, flags, 1, payload))


@given(st.lists(st.tuples(NAMES, VALUES), max_size=20), st.booleans())
def test_headers_come_out_as_they_went_in(sent: list[tuple[str, str]], secret: bool) -> None:
    assert hpack.decode(hpack.encode(sent, secret)) == sent


@given(st.binary(max_size=2000))
def test_any_bytes_are_headers_or_one_error(block: bytes) -> None:
    try:
        found = hpack.decode(block)
    except ProtocolError:
        return
    assert len(found) <= hpack.MAX_HEADERS


def huffman(raw: bytes) -> bytes:
    """The Huffman code of `raw`, filled up with ones."""
    codes = {symbol: code for code, symbol in hpack._symbols().items()}
    bits = "".join(f"{code:0{length}b}" for length, code in (codes[byte] for byte in raw))
    bits += "1" * (-len(bits) % 8)
    return int(bits or "0", 2).to_bytes(len(bits) // 8, "big")


@given(st.binary(max_size=300))
def test_huffman_codes_of_any_bytes_are_read(raw: bytes) -> None:
    assert hpack.huffman_decode(huffman(raw)) == raw


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("f1e3c2e5f23a6ba0ab90f4ff", b"www.example.com"),
        ("a8eb10649cbf", b"no-cache"),
        ("25a849e95ba97d7f", b"custom-key"),
        ("d07abe941054d444a8200595040b8166e082a62d1bff", b"Mon, 21 Oct 2013 20:13:21 GMT"),
    ],
)
def test_huffman_codes_are_those_of_the_standard(code: str, text: bytes) -> None:
    """The examples of RFC 7541, appendix C."""
    assert hpack.huffman_decode(bytes.fromhex(code)) == text


@pytest.mark.parametrize("code", [b"\xff", b"\x00\xff\xff", b"\xff\xff\xff\xff", b"\x18"])
def test_a_huffman_code_with_a_wrong_end_is_an_error(code: bytes) -> None:
    if code == b"\x18":
        assert hpack.huffman_decode(b"\x1f") == b"a"
    with pytest.raises(ProtocolError):
        hpack.huffman_decode(code)


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (b"\x88", [(":status", "200")]),  # of the static table
        (b"\x20\x88", [(":status", "200")]),  # our table of size 0 confirmed
        (b"\x48\x03404", [(":status", "404")]),  # to be indexed, which a table of 0 forgets
        (b"\x5f\x10application/grpc", [("content-type", "application/grpc")]),
        (b"\x0f\x10\x01x", [("content-type", "x")]),
        (b"\x10\x01a\x01b", [("a", "b")]),
    ],
)
def test_each_kind_of_header_is_read(block: bytes, expected: list[tuple[str, str]]) -> None:
    assert hpack.decode(block) == expected


@pytest.mark.parametrize(
    "block",
    [
        b"\x80",  # no entry 0
        b"\xbe",  # an entry of the dynamic table, which is empty
        b"\x7e\x01x",
        b"\x3f\xe1\x1f",  # a table of 4096 that we did not allow
        b"\x88\x20",  # a new size in the middle
        b"\x00\x05ab",
        b"\x00",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x88" * (hpack.MAX_HEADERS + 1),
    ],
)
def test_what_was_not_agreed_on_is_an_error(block: bytes) -> None:
    with pytest.raises(ProtocolError):
        hpack.decode(block)
