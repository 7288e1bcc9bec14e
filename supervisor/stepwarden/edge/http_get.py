"""One HTTP GET: no redirects, no proxies, bounded in time and size. For probes, not for browsing.

With https the certificate is not verified: a probe goes to an address of the operator's own file,
as a rule on this very host with a certificate of its own making, and sends nothing worth stealing.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline
from stepwarden.edge.dial import Connection, Dialer
from stepwarden.waiting import wait

MOST_HEADERS = 256
_STATUS = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: .*)?")
_PRINTABLE = re.compile(r"[!-~]+")
_PORTS = {"http": 80, "https": 443}
_NO_BODY = frozenset({204, 304})


class HttpFault(Exception):
    """What came back is no HTTP answer that we take; the text says why."""


@dataclass(frozen=True, slots=True)
class HttpUrl:
    """Where to ask. `authority`: HOST or HOST:PORT as written. `target`: path and query."""

    secure: bool
    host: str
    port: int
    authority: str
    target: str


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """The status, and the body where one was asked for."""

    status: int
    body: bytes = b""


def parse_url(text: str) -> HttpUrl:
    """An http or https URL. ValueError with one line where it is none that a probe can ask."""
    if _PRINTABLE.fullmatch(text) is None:
        raise ValueError(f"{text!r} is not a URL of printable ASCII characters")
    parts = urlsplit(text)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError(f"{text!r} is not a URL of the form http://HOST:PORT/PATH or https://...")
    if "@" in parts.netloc:
        raise ValueError(f"{text!r} holds a user name; probes do not log in")
    try:
        port = parts.port
    except ValueError:
        port = 0
    if port == 0:
        raise ValueError(f"{text!r} has no port between 1 and 65535")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    secure = parts.scheme == "https"
    return HttpUrl(secure, parts.hostname, port or _PORTS[parts.scheme], parts.netloc, target)


class HttpGetter:
    """Asks URLs, a new connection each time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._dialer = Dialer(clock)

    async def get(self, url: HttpUrl, deadline: Deadline, most_bytes: int = 0) -> HttpAnswer:
        """The answer; with `most_bytes` 0 its status alone. HttpFault, OSError or TimeoutError."""
        tls = _unverified() if url.secure else None
        connection = await self._dialer.connect(url.host, url.port, deadline, tls)
        try:
            return await wait(_exchange(connection, url, most_bytes), deadline, self._clock)
        except TimeoutError:
            raise TimeoutError("no answer in time") from None
        except (EOFError, ValueError) as error:  # ended early; a line that is too long
            raise HttpFault(f"is no HTTP answer ({error})") from None
        finally:
            connection.close()


def _unverified() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _exchange(connection: Connection, url: HttpUrl, most_bytes: int) -> HttpAnswer:
    connection.writer.write(
        f"GET {url.target} HTTP/1.1\r\nHost: {url.authority}\r\nUser-Agent: stepwarden\r\n"
        "Accept: text/plain, */*;q=0.5\r\nAccept-Encoding: identity\r\n"
        "Connection: close\r\n\r\n".encode("ascii")
    )
    while True:
        status = await _status(connection)
        headers = await _headers(connection)
        if status >= 200:  # those before are followed by the real one
            break
    if not most_bytes or status in _NO_BODY:
        return HttpAnswer(status)
    return HttpAnswer(status, await _body(connection, headers, most_bytes))


async def _status(connection: Connection) -> int:
    line = (await connection.reader.readline()).rstrip(b"\r\n")
    match = _STATUS.fullmatch(line)
    if match is None:
        shown = line[:40].decode("ascii", "backslashreplace")
        raise HttpFault(f"is no HTTP answer ({shown!r})")
    return int(match[1])


async def _headers(connection: Connection) -> dict[bytes, bytes]:
    headers: dict[bytes, bytes] = {}
    for _ in range(MOST_HEADERS):
        line = await connection.reader.readline()
        if line in (b"\r\n", b"\n"):
            return headers
        name, colon, value = line.partition(b":")
        if not colon:
            raise HttpFault("is no HTTP answer (it ends within its headers)")
        headers[name.strip().lower()] = value.strip()
    raise HttpFault(f"has more than {MOST_HEADERS} headers")


async def _body(connection: Connection, headers: dict[bytes, bytes], most: int) -> bytes:
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise HttpFault("is compressed although that was not asked for")
    if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
        return await _chunks(connection, most)
    if b"content-length" in headers:
        length = _fitting(int(headers[b"content-length"]), most)
        return await connection.reader.readexactly(length)
    parts: list[bytes] = []
    size = 0
    while part := await connection.reader.read(64 * 1024):
        size = _fitting(size + len(part), most)
        parts.append(part)
    return b"".join(parts)


async def _chunks(connection: Connection, most: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        line = await connection.reader.readline()
        length = int(line.partition(b";")[0], 16)
        if length == 0:
            return b"".join(parts)
        size = _fitting(size + _fitting(length, most), most)
        parts.append(await connection.reader.readexactly(length))
        await connection.reader.readexactly(2)


def _fitting(size: int, most: int) -> int:
    if size < 0:
        raise HttpFault("has a negative length")
    if size > most:
        raise HttpFault(f"is larger than {most} bytes")
    return size
