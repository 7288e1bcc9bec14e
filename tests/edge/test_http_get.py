from __future__ import annotations

import socket
import threading

import pytest
from stepwarden.clock import SystemClock
from stepwarden.core.deadline import Deadline
from stepwarden.edge.aside import Aside
from stepwarden.edge.dial import Dialer, fault
from stepwarden.edge.http_get import HttpAnswer, HttpFault, HttpGetter, parse_url
from support.process_world import PATIENCE, run, until
from support.tiny_servers import answering, page, silent, tcp_server

CLOCK = SystemClock()


def soon(seconds: float = PATIENCE) -> Deadline:
    return Deadline.after(CLOCK.monotonic(), seconds)


async def get(port: int, most: int = 1000, seconds: float = PATIENCE) -> HttpAnswer:
    url = parse_url(f"http://127.0.0.1:{port}/metrics?x=1")
    return await HttpGetter(CLOCK).get(url, soon(seconds), most)


CHUNKED = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (page(b"abc"), HttpAnswer(200, b"abc")),
        (page(b"", "503 Service Unavailable"), HttpAnswer(503, b"")),
        (CHUNKED, HttpAnswer(200, b"abcde")),
        (b"HTTP/1.0 200\nServer: x\n\nup to the end", HttpAnswer(200, b"up to the end")),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + page(b"ok"), HttpAnswer(200, b"ok")),
        (b"HTTP/1.1 204 No Content\r\n\r\n", HttpAnswer(204)),
        (b"HTTP/1.1 301 Moved\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", HttpAnswer(301)),
    ],
)
def test_what_servers_answer(raw: bytes, expected: HttpAnswer) -> None:
    async def story() -> None:
        async with tcp_server(answering(raw)) as port:
            assert await get(port) == expected

    run(story())


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"", "no HTTP answer"),
        (b"SSH-2.0-OpenSSH\r\n", "no HTTP answer ('SSH-2.0-OpenSSH')"),
        (b"HTTP/1.1 200 OK\r\nContent-", "within its headers"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 300 + b"\r\n", "more than 256 headers"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"x" * 200_000, "no HTTP answer"),
        (page(b"x" * 1001), "larger than 1000 bytes"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 5000, "larger than 1000 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", "negative"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", "no HTTP answer"),
        (CHUNKED.replace(b"3;ext=1", b"zz"), "no HTTP answer"),
        (CHUNKED.replace(b"3;ext=1", b"ffffff"), "larger than 1000 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nabc", "compressed"),
    ],
)
def test_what_is_not_taken(raw: bytes, words: str) -> None:
    async def story() -> None:
        async with tcp_server(answering(raw)) as port:
            with pytest.raises(HttpFault) as caught:
                await get(port)
            assert words in str(caught.value)

    run(story())


def test_silence_ends_at_the_deadline() -> None:
    async def story() -> None:
        async with tcp_server(silent) as port:
            with pytest.raises(TimeoutError):
                await get(port, seconds=0.2)

    run(story())


@pytest.mark.parametrize(
    "text",
    [
        "ftp://x/",
        "127.0.0.1:80",
        "http://",
        "http://u:p@h/",
        "http://h:99999/",
        "http://h:0/",
        "http://h/a b",
        "http://h/\r\nX: y",
    ],
)
def test_urls_that_no_probe_asks(text: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_url(text)
    assert "\n" not in str(caught.value)


def test_urls_as_operators_write_them() -> None:
    url = parse_url("https://[::1]:8443/health?full=1#top")
    assert (url.secure, url.host, url.port, url.target) == (True, "::1", 8443, "/health?full=1")
    assert (parse_url("http://h").port, parse_url("http://h").target) == (80, "/")


def test_a_name_is_resolved_and_every_address_tried() -> None:
    async def story() -> None:
        async with tcp_server(answering(page(b"ok"))) as port:
            url = parse_url(f"http://localhost:{port}/")
            assert (await HttpGetter(CLOCK).get(url, soon(), 100)).body == b"ok"

    run(story())


def test_a_hanging_name_server_costs_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()
    asked = 0

    def hang(*_: object, **__: object) -> list[object]:
        nonlocal asked
        asked += 1
        go_on.wait(PATIENCE)
        raise socket.gaierror(-2, "Name or service not known")

    async def story() -> None:
        monkeypatch.setattr(socket, "getaddrinfo", hang)
        dialer = Dialer(CLOCK)
        for _ in range(5):
            with pytest.raises(TimeoutError, match="not resolved in time"):
                await dialer.connect("models.example", 80, soon(0.05))
        assert asked == 1
        go_on.set()
        await until(lambda: not [t for t in threading.enumerate() if t.name == "aside"])
        with pytest.raises(socket.gaierror) as caught:
            await dialer.connect("models.example", 80, soon())
        assert fault(caught.value) == "Name or service not known"

    run(story())


def test_a_call_aside_gives_its_result_or_its_error() -> None:
    async def story() -> None:
        aside = Aside(CLOCK)
        assert await aside.call(lambda: 5, soon()) == 5
        with pytest.raises(ZeroDivisionError):
            await aside.call(lambda: 1 // 0, soon())
        await until(lambda: not [t for t in threading.enumerate() if t.name == "aside"])

    run(story())
