"""Header compression of HTTP/2 (RFC 7541), as much as a client needs that keeps no table.

We announce a dynamic table of size 0, so what a peer may send is: entries of the static table,
literal strings, plain or in Huffman code, and the update that says 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Final

from stepwarden_agent.wire.frames import ProtocolError

MAX_HEADERS: Final = 64
MAX_HEADER_BYTES: Final = 16_384
"""Of all names and values of one block, decoded."""

_MAX_INTEGER_BYTES = 5

Header = tuple[str, str]

_NAMES_TEXT = """
    :authority :method :method :path :path :scheme :scheme :status :status :status :status :status
    :status :status accept-charset accept-encoding accept-language accept-ranges accept
    access-control-allow-origin age allow authorization cache-control content-disposition
    content-encoding content-language content-length content-location content-range content-type
    cookie date etag expect expires from host if-match if-modified-since if-none-match if-range
    if-unmodified-since last-modified link location max-forwards proxy-authenticate
    proxy-authorization range referer refresh retry-after server set-cookie
    strict-transport-security transfer-encoding user-agent vary via www-authenticate
"""
_NAMES: Final = _NAMES_TEXT.split()
_VALUES: Final = {
    2: "GET",
    3: "POST",
    4: "/",
    5: "/index.html",
    6: "http",
    7: "https",
    8: "200",
    9: "204",
    10: "206",
    11: "304",
    12: "400",
    13: "404",
    14: "500",
    16: "gzip, deflate",
}

# Bits of each byte's code, and of the end mark's, in base 36. The code is canonical: lengths say
# all of it.
_LENGTHS: Final = (
    "dnsssssssoussussssssssusssssssss6aacd68baa8b8666555666666678f6ca"
    "d67777777777777777777777878djde6f56565666577666567655677777fbeds"
    "kmkkmmmnmnnnnnonoomnonnnnlmnmnnomlkmmnnlnmmolmnnllmlnmnnkmmmnmmn"
    "qqkjmnmpqqqrrqopjlqrrqrollqqsrrrkoklmllnmmppooqnqrqqrrrrrsrrrrrq"
    "u"
)


def encode(headers: Iterable[Header], secret: bool = False) -> bytes:
    """A header block of literals without indexing; `secret`: marked as never to be indexed by
    anybody on the way. Raises UnicodeEncodeError for what is not ASCII.
    """
    block = bytearray()
    for name, value in headers:
        block.append(0x10 if secret else 0x00)
        for text in (name, value):
            raw = text.encode("ascii")
            block += _integer(len(raw), 7) + raw
    return bytes(block)


def decode(block: bytes) -> list[Header]:
    """The headers of a block. Raises ProtocolError for what is malformed or too much."""
    headers: list[Header] = []
    place = size = 0
    while place < len(block):
        first = block[place]
        if first & 0xE0 == 0x20:
            length, place = _read_integer(block, place, 5)
            if length != 0 or headers:
                raise ProtocolError("a header table that was not agreed on")
            continue
        header, place = _read_header(block, place)
        headers.append(header)
        size += len(header[0]) + len(header[1])
        if size > MAX_HEADER_BYTES or len(headers) > MAX_HEADERS:
            raise ProtocolError("too many headers")
    return headers


def _read_header(block: bytes, place: int) -> tuple[Header, int]:
    first = block[place]
    if first & 0x80:
        index, place = _read_integer(block, place, 7)
        return (_static_name(index), _VALUES.get(index, "")), place
    index, place = _read_integer(block, place, 6 if first & 0x40 else 4)
    if index:
        name = _static_name(index)
    else:
        name, place = _read_string(block, place)
    value, place = _read_string(block, place)
    return (name, value), place


def _static_name(index: int) -> str:
    if not 1 <= index <= len(_NAMES):
        raise ProtocolError("a header that is in no table")
    return _NAMES[index - 1]


def _integer(value: int, bits: int) -> bytes:
    """`value` in the low `bits` of a byte, and in further ones where it does not fit."""
    limit = (1 << bits) - 1
    if value < limit:
        return bytes((value,))
    out = bytearray((limit,))
    value -= limit
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_integer(block: bytes, place: int, bits: int) -> tuple[int, int]:
    """The integer at `place` and the place after it."""
    limit = (1 << bits) - 1
    value = block[place] & limit
    place += 1
    if value < limit:
        return value, place
    for shift in range(0, 7 * _MAX_INTEGER_BYTES, 7):
        if place >= len(block):
            break
        byte = block[place]
        place += 1
        value += (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, place
    raise ProtocolError("a malformed number in a header")


def _read_string(block: bytes, place: int) -> tuple[str, int]:
    """The string at `place` and the place after it."""
    if place >= len(block):
        raise ProtocolError("a header that is cut off")
    coded = block[place] & 0x80
    length, place = _read_integer(block, place, 7)
    raw = block[place : place + length]
    if len(raw) != length:
        raise ProtocolError("a header that is cut off")
    if coded:
        raw = huffman_decode(raw)
    return raw.decode("latin-1"), place + length


@cache
def _symbols() -> dict[tuple[int, int], int]:
    """The byte (256: the end mark) for each (bits, code)."""
    lengths = [int(digit, 36) for digit in _LENGTHS]
    found: dict[tuple[int, int], int] = {}
    code = bits = 0
    for symbol in sorted(range(len(lengths)), key=lambda symbol: (lengths[symbol], symbol)):
        code <<= lengths[symbol] - bits
        bits = lengths[symbol]
        found[bits, code] = symbol
        code += 1
    return found


def huffman_decode(raw: bytes) -> bytes:
    """The bytes behind a Huffman code. Raises ProtocolError where it is none."""
    symbols = _symbols()
    out = bytearray()
    bits = code = 0
    for byte in raw:
        for shift in range(7, -1, -1):
            bits, code = bits + 1, code << 1 | byte >> shift & 1
            symbol = symbols.get((bits, code))
            if symbol is not None:
                if symbol > 0xFF:
                    raise ProtocolError("an end mark inside a header")
                out.append(symbol)
                bits = code = 0
            elif bits > 30:
                raise ProtocolError("a malformed code in a header")
    # What is left over is the begin of the end mark: ones, less than a byte.
    if bits > 7 or code != (1 << bits) - 1:
        raise ProtocolError("a malformed code in a header")
    return bytes(out)
